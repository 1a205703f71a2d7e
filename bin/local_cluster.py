"""A cluster on one machine: one process per worker, the same command."""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from albert_tf.cluster.clusters import local_clusters
from bin.children import Children, exit_status

# Workers detect a lost one within 10 seconds, and report it themselves.
_GRACE_SECONDS = 15.0


def run_local_cluster(
    command: Sequence[str], number: int, grace_seconds: float = _GRACE_SECONDS
) -> int:
    """Returns 0, or the exit status of the worker that failed first.

    Each worker has a TF_CONFIG with free ports of this machine. The output of
    worker 0 is shown as it is, the others' lines with their number. SIGTERM
    and SIGINT go to all. When one has failed, the others get `grace_seconds`
    to end, then SIGTERM, and as long again until they are killed.
    """
    with Children() as children:
        readers = []
        for cluster in local_clusters(number):
            options = {} if cluster.index == 0 else _PIPED
            process = children.start(
                command, {"TF_CONFIG": cluster.tf_config()}, **options
            )
            if process.stdout:
                readers.append(_show(process, f"worker {cluster.index}: "))
        status = _wait(children, grace_seconds)
        for thread in readers:
            thread.join(timeout=grace_seconds)
        return status


# A pipe is no terminal, so there are no bars.
_PIPED = {
    "stdin": subprocess.DEVNULL,
    "stdout": subprocess.PIPE,
    "stderr": subprocess.STDOUT,
    "text": True,
    "errors": "replace",
}


def _show(process: subprocess.Popen, prefix: str) -> threading.Thread:
    def copy() -> None:
        for line in process.stdout:
            sys.stdout.write(f"{prefix}{line.rstrip()}\n")
            sys.stdout.flush()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def _wait(children: Children, grace_seconds: float) -> int:
    """Returns once every worker has ended."""
    while not (failed := _failed(children)):
        if not _running(children):
            return 0
        time.sleep(0.1)
    worker, status = failed
    others = _running(children)
    if others:
        print(
            f"worker {worker} has ended with exit status {status}; stopping "
            "the others.",
            file=sys.stderr,
            flush=True,
        )
    # After a signal workers may save, however long that takes.
    patience = None if children.received else grace_seconds
    _wait_for(others, patience)
    for process in _running(children):
        process.terminate()
    _wait_for(others, patience)
    return status


def _failed(children: Children) -> tuple[int, int] | None:
    for worker, process in enumerate(children.processes):
        if process.poll():
            return worker, exit_status(process.returncode)
    return None


def _running(children: Children) -> list[subprocess.Popen]:
    return [p for p in children.processes if p.poll() is None]


def _wait_for(
    processes: Sequence[subprocess.Popen], seconds: float | None
) -> None:
    deadline = None if seconds is None else time.monotonic() + seconds
    for process in processes:
        left = None if deadline is None else deadline - time.monotonic()
        try:
            process.wait(left)
        except subprocess.TimeoutExpired:
            return
