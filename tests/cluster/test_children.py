"""A cluster on one machine, of small scripts instead of trainers."""

import json
import signal
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from albert_tf.cluster.children import run_local_cluster

WORKER = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
"""


@pytest.fixture
def cluster(capfd):
    """run(script, number, grace) returns the status, output and errors."""

    def run(script, number=2, grace=5.0):
        command = [sys.executable, "-c", WORKER + script]
        status = run_local_cluster(command, number, grace)
        return status, *capfd.readouterr()

    return run


def test_every_worker_knows_the_same_cluster_and_is_shown(cluster):
    # Each worker writes a line in one piece: where Python does not buffer,
    # print writes it in several, and another worker's could come between.
    status, out, errors = cluster(
        "line = f\"{os.environ['TF_CONFIG']} {sys.stderr.isatty()}\\n\"\n"
        "os.write(1 + (task == 2), line.encode())\n"
        "if task == 0: os.write(2, b'err\\n')",
        number=3,
    )
    assert (status, errors) == (0, "err\n")
    configs = {}
    for line in out.splitlines():
        name, _, text = line.rpartition('{"cluster"')
        text, bar = ('{"cluster"' + text).rsplit(" ", 1)
        configs[name] = json.loads(text)
        assert bar == "False"
    # The first worker's output is the program's own.
    assert sorted(configs) == ["", "worker 1: ", "worker 2: "]
    assert [configs[n]["task"]["index"] for n in sorted(configs)] == [0, 1, 2]
    (workers,) = {
        tuple(config["cluster"]["worker"]) for config in configs.values()
    }
    assert len(set(workers)) == 3


def test_a_worker_whose_output_cannot_be_shown_does_not_hang(
    cluster, monkeypatch
):
    full = mock.Mock(**{"write.side_effect": OSError})
    monkeypatch.setattr(sys, "stdout", full)
    # More than a pipe holds.
    script = "signal.alarm(10)\nif task: os.write(1, b'line\\n' * 100_000)"
    assert cluster(script)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "status"),
    [("sys.exit(75)", 75), ("os.kill(os.getpid(), signal.SIGKILL)", 137)],
)
def test_the_first_failure_is_the_exit_status(cluster, end, status):
    script = f"if task == 1: {end}\ntime.sleep(1.0)\nsys.exit(3)"
    found, _, errors = cluster(script)
    assert found == status
    assert errors == (
        f"worker 1 has ended with exit status {status}; stopping the others.\n"
    )


@pytest.mark.slow
def test_a_worker_that_does_not_end_is_killed(cluster):
    script = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if task == 1: time.sleep(0.5); sys.exit(75)\n"
        "print(os.getpid(), flush=True)\ntime.sleep(60)"
    )
    begin = time.monotonic()
    status, out, _ = cluster(script, grace=0.5)
    assert status == 75
    assert not Path(f"/proc/{int(out)}").exists()
    assert time.monotonic() - begin < 30


@pytest.mark.slow
def test_a_signal_reaches_every_worker_and_all_may_save(cluster, tmp_path):
    status, out, _ = cluster(
        f"ready = {str(tmp_path / 'ready')!r}\n"
        "def end(number, frame):\n"
        # Longer than the others' patience with a failure.
        "    time.sleep(task * 1.5)\n"
        # Not print: it may be within another, and write a line in parts.
        "    os.write(1, b'saved\\n')\n"
        "    sys.exit(128 + number)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "if task == 1: open(ready, 'w')\n"
        "while task == 0 and not os.path.exists(ready): time.sleep(0.05)\n"
        "if task == 0: os.kill(os.getppid(), signal.SIGTERM)\n"
        # A signal that comes just before one long sleep is heard after it.
        "for _ in range(1200): time.sleep(0.05)",
        grace=0.2,
    )
    assert status == 128 + signal.SIGTERM
    assert out.splitlines() == ["saved", "worker 1: saved"]
