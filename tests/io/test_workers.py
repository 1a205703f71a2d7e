import os
import signal
import subprocess
import sys
import time

import pytest

from albert_tf.io.workers import Workers

PROGRAM = """
import os, time
from albert_tf.io.workers import Workers
def pid(number):
    time.sleep(0.3)
    return os.getpid()
if __name__ == '__main__':
    with Workers(2) as workers:
        print(*set(workers.map(pid, range(6))), flush=True)
        time.sleep(60)
"""


def is_running(pid):
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return " Z " not in file.read()
    except OSError:
        return False


@pytest.mark.slow
def test_workers_end_with_the_process_that_started_them(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, program],
        env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
    ) as process:
        pids = list(map(int, process.stdout.readline().split()))
        process.send_signal(signal.SIGKILL)
    assert len(pids) == 2
    deadline = time.monotonic() + 20
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_results_come_in_order_and_few_items_are_taken_in_advance(number):
    taken = []

    def items():
        for item in range(50):
            taken.append(item)
            yield -item

    with Workers(number) as workers:
        results = workers.map(abs, items())
        assert next(results) == 0
        assert len(taken) <= 5
        assert list(results) == list(range(1, 50))


def blocked_signals(_):
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.slow
def test_workers_never_get_ctrl_c():
    with Workers(2) as workers:
        for blocked in workers.map(blocked_signals, range(2)):
            assert signal.SIGINT in blocked
    assert signal.SIGINT not in blocked_signals(None)


@pytest.mark.slow
def test_after_an_error_work_that_is_in_progress_is_not_waited_for():
    with pytest.raises(RuntimeError), Workers(2) as workers:
        next(workers.map(time.sleep, [0, 5]))
        begin = time.monotonic()
        raise RuntimeError
    assert time.monotonic() - begin < 2
