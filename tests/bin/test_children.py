"""A cluster on one machine, of small scripts instead of trainers."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Starts the cluster of a script; the program's exit status is the cluster's.
PARENT = """
import sys
from bin.children import run_local_cluster
command = [sys.executable, "-c", sys.argv[1]]
sys.exit(run_local_cluster(command, int(sys.argv[2]), float(sys.argv[3])))
"""
WORKER = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
"""


def cluster(script, number=2, grace=5.0):
    return subprocess.Popen(
        [
            *(sys.executable, "-c", PARENT),
            *(WORKER + script, str(number), str(grace)),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process):
    out, errors = process.communicate(timeout=60)
    return process.returncode, out, errors


# In these two each worker writes a line in one piece: where Python does not
# buffer, print writes it in several, and another worker's could come between.
def test_every_worker_knows_the_same_cluster():
    script = (
        "line = f\"{os.environ['TF_CONFIG']} {sys.stderr.isatty()}\\n\"\n"
        "os.write(1, line.encode())"
    )
    status, out, errors = result(cluster(script, 3))
    assert (status, errors) == (0, "")
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


def test_error_streams_of_all_workers_are_shown():
    script = "os.write(1, b'out\\n'); os.write(2, b'err\\n')"
    status, out, errors = result(cluster(script))
    assert (status, errors) == (0, "err\n")
    assert out.splitlines().count("worker 1: out") == 1
    assert out.splitlines().count("worker 1: err") == 1


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("sys.exit(75)", 75),
        ("sys.exit(1)", 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137),
    ],
)
def test_the_first_failure_is_the_exit_status(end, status):
    script = f"if task == 1: {end}\ntime.sleep(1.0)\nsys.exit(3)"
    found, _, errors = result(cluster(script))
    assert found == status
    assert errors == (
        f"worker 1 has ended with exit status {status}; stopping the others.\n"
    )


def test_a_worker_that_does_not_end_is_killed():
    script = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if task == 1: time.sleep(0.5); sys.exit(75)\n"
        "print(os.getpid(), flush=True)\ntime.sleep(60)"
    )
    begin = time.monotonic()
    status, out, _ = result(cluster(script, grace=0.5))
    assert status == 75
    assert not Path(f"/proc/{int(out)}").exists()
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_every_worker_and_all_may_save(number):
    script = (
        "def end(number, frame):\n"
        # Longer than the others' patience with a failure.
        "    time.sleep(task * 1.5)\n"
        # Not print: it may be within another, and write a line in parts.
        "    os.write(1, b'saved\\n')\n"
        "    sys.exit(128 + number)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "signal.signal(signal.SIGINT, end)\n"
        "os.write(1, b'ready\\n')\n"
        # A signal that comes just before one long sleep is heard after it.
        "for _ in range(1200): time.sleep(0.05)"
    )
    process = cluster(script, grace=0.2)
    ready = {process.stdout.readline() for _ in range(2)}
    assert ready == {"ready\n", "worker 1: ready\n"}
    process.send_signal(number)
    status, out, _ = result(process)
    assert status == 128 + number
    assert out.splitlines() == ["saved", "worker 1: saved"]
