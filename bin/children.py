"""Child processes, which receive the signals of their program.

Also a cluster on one machine: one process per worker, the same command.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.cluster.clusters import local_clusters

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Workers detect a lost one within 10 seconds, and report it themselves.
_GRACE_SECONDS = 15.0


class Children:
    """Forwards SIGTERM and SIGINT to child processes within its context.

    The program itself does not end by them. Children still running at the end
    are killed.

    Attributes:
        processes: in the order of their start.
        received: the last signal, or None.
    """

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen] = []
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Children":
        for number in _SIGNALS:
            self._previous[number] = signal.signal(number, self._pass_on)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen:
        """Returns the running process; `environment` is added to os.environ.

        Raises:
            OSError: when the command cannot be started.
        """
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            # A terminal sends Ctrl-C to a whole group: the child would get it
            # twice, and the second one ends a save.
            process_group=0,
            **options,
        )
        self.processes.append(process)
        if self.received:
            # Received while this process was being started.
            process.send_signal(self.received)
        return process

    def _pass_on(self, number: int, frame: types.FrameType | None) -> None:
        self.received = signal.Signals(number)
        for process in self.processes:
            process.send_signal(number)


def exit_status(returncode: int) -> int:
    """Returns a child's exit status as a shell reports it."""
    return returncode if returncode >= 0 else 128 - returncode


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
    failed: list[int] = []
    while not failed:
        if not (others := _running(children)):
            return 0
        time.sleep(0.1)
        codes = enumerate(process.poll() for process in children.processes)
        failed = [worker for worker, code in codes if code]
    status = exit_status(children.processes[failed[0]].returncode)
    if others := _running(children):
        print(
            f"worker {failed[0]} has ended with exit status {status}; stopping "
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
