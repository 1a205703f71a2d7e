"""Clusters of each launcher, and waiting for workers."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from albert_tf.cluster.clusters import (
    Cluster,
    find_cluster,
    local_clusters,
    local_size,
    wait_for_workers,
)
from albert_tf.cluster.stops import RunStopped
from albert_tf.config import UserError


def tf_config(jobs, kind="worker", index=0):
    return json.dumps({"cluster": jobs, "task": {"type": kind, "index": index}})


def test_a_chief_is_the_first_worker(monkeypatch):
    workers = {"worker": ["a:1", "b:2"]}
    with_chief = {**workers, "chief": ["c:3"]}
    last = Cluster(("c:3", "a:1", "b:2"), 2)
    for text, cluster in (
        (tf_config(workers, index=1), Cluster(("a:1", "b:2"), 1)),
        (tf_config(with_chief, "chief"), Cluster(("c:3", "a:1", "b:2"), 0)),
        (tf_config(with_chief, index=1), last),
        (last.tf_config(), last),
    ):
        monkeypatch.setenv("TF_CONFIG", text)
        assert find_cluster("") == cluster


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        tf_config({"worker": ["a:1"]}, index=1),
        tf_config({"worker": ["a:1"]}, "ps"),
        tf_config({"worker": ["a"]}),
        # Sockets would raise an OverflowError.
        tf_config({"worker": ["a:65536"]}),
        tf_config({"worker": ["a:1"], "ps": ["b:1"]}),
    ],
)
def test_invalid_tf_config(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError) as error:
        find_cluster("")
    assert str(error.value).startswith(f"TF_CONFIG={text} is not usable: ")


def test_no_tf_config(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(UserError, match="TF_CONFIG is not set. Every worker"):
        find_cluster("")


def test_jobset(monkeypatch):
    monkeypatch.setenv("JOBSET_NAME", "albert")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "2")
    monkeypatch.setattr(socket, "gethostname", lambda: "albert-w-0-2")
    assert find_cluster("jobset:3") == Cluster(
        tuple(f"albert-w-0-{n}.albert:2222" for n in range(3)), 2
    )
    with pytest.raises(UserError, match="is not one of 2 indexed workers"):
        find_cluster("jobset:2")
    with pytest.raises(UserError, match="needs the number of workers"):
        find_cluster("jobset")
    monkeypatch.delenv("JOBSET_NAME")
    with pytest.raises(UserError, match="The variable JOBSET_NAME is not set"):
        find_cluster("jobset:3")


def test_slurm(monkeypatch):
    variables = {
        "SLURM_PROCID": "2",
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "2,1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_cluster("slurm") == Cluster(
        ("n1:2222", "n1:2223", "n2:2222"), 2
    )
    monkeypatch.delenv("SLURM_PROCID")
    with pytest.raises(UserError, match="SLURM_PROCID is not set. Start the"):
        find_cluster("slurm")


def test_unknown_and_local_clusters():
    with pytest.raises(UserError, match="'mpi' is not one of tf_config, loc"):
        find_cluster("mpi")
    with pytest.raises(UserError, match="local:3: the programs in bin/ start"):
        find_cluster("local:3")
    assert local_size("local:3") == 3
    assert local_size("tf_config") == local_size("") == 0
    for bad in ("local", "local:", "local:0", "local:x", "local:²", "local:65"):
        with pytest.raises(UserError, match="local:N starts N processes"):
            local_size(bad)


def test_workers_that_start_at_different_times():
    clusters = local_clusters(3)
    servers = []

    def start(cluster):
        wait_for_workers(cluster, 20.0)
        # Whoever has seen all leaves its address to TensorFlow's server.
        port = int(cluster.workers[cluster.index].rpartition(":")[2])
        servers.append(socket.create_server(("", port)))

    threads = [threading.Thread(target=start, args=(c,)) for c in clusters]
    for thread in threads[:2]:
        thread.start()
    time.sleep(0.5)
    assert all(thread.is_alive() for thread in threads[:2])
    threads[2].start()
    for thread in threads:
        thread.join(20)
    assert len(servers) == 3
    for server in servers:
        server.close()


def test_a_missing_worker_is_named():
    clusters = local_clusters(3)
    present, missing = clusters[1].workers[1:]
    with (
        socket.create_server(("localhost", int(present.rpartition(":")[2]))),
        pytest.raises(RunStopped) as stopped,
    ):
        wait_for_workers(clusters[0], 0.5)
    assert stopped.value.exit_code == 75
    assert str(stopped.value).startswith(
        f"worker 0 of 3 has waited 0.5 seconds for {missing}: no answer."
    )


def test_a_port_in_use():
    (cluster,) = local_clusters(1)
    port = int(cluster.workers[0].rpartition(":")[2])
    with (
        socket.create_server(("", port)),
        pytest.raises(RunStopped, match="worker 0 cannot be reached") as stop,
    ):
        wait_for_workers(cluster, 1.0)
    assert stop.value.exit_code == 75


# Held up where Python does not run, the interpreter locked.
STUCK = """
import ctypes
from albert_tf.cluster.clusters import start_watchdog
with start_watchdog(0.1, "this one is stopped in time"):
    pass
with start_watchdog(1.0, "worker 0: stuck; killed."):
    ctypes.PyDLL(None).sleep(60)
"""


def test_the_watchdog_kills_a_hanging_process():
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", STUCK], stderr=subprocess.PIPE, timeout=50
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stderr == b"worker 0: stuck; killed.\n"
    assert time.monotonic() - begin < 30


def test_the_watchdog_ends_with_its_process():
    script = (
        "import os\n"
        "from albert_tf.cluster.clusters import start_watchdog\n"
        "print(start_watchdog(600.0, 'never said').pid, flush=True)\n"
        "os._exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, timeout=50
    )
    watchdog = int(done.stdout)
    deadline = time.monotonic() + 20
    while _runs(watchdog):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
