"""Child processes to which a program forwards its signals.

Also a cluster on one machine: a process per worker, with the same command.
"""

import contextlib
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
from albert_tf.cluster.stops import signals_to_handle

# Workers detect a lost one within 10 seconds, and report it themselves.
_GRACE_SECONDS = 15.0


class Children:
    """Forwards SIGTERM, SIGINT and SIGHUP to child processes in its context.

    The program itself does not end by them. Children still running at the end
    are killed. SIGHUP stays ignored where it is (nohup).

    Attributes:
        processes: in the order of their start.
        received: the last signal, or None.
    """

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen] = []
        self.received: signal.Signals | None = None
        self._signalled: list[subprocess.Popen] = []

    def __enter__(self) -> "Children":
        self._previous = {
            number: signal.signal(number, self._pass_on)
            for number in signals_to_handle()
        }
        return self

    def __exit__(self, *error: object) -> None:
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
        if self.received and process not in self._signalled:
            # Received while this process was being started.
            process.send_signal(self.received)
        return process

    def _pass_on(self, number: int, frame: types.FrameType | None) -> None:
        self.received = signal.Signals(number)
        for process in self.processes:
            self._signalled.append(process)
            process.send_signal(number)


def exit_status(returncode: int) -> int:
    """Returns a child's exit status as a shell reports it."""
    return returncode if returncode >= 0 else 128 - returncode


def run_local_cluster(
    command: Sequence[str], number: int, grace_seconds: float = _GRACE_SECONDS
) -> int:
    """Returns 0, or the exit status of the worker that failed first.

    Each worker has a TF_CONFIG with free ports of this machine. The output of
    worker 0 is shown as it is, the others' lines with their number. Signals
    to stop go to all. When one has failed, the others get `grace_seconds`
    to end, then SIGTERM, and as long again until they are killed.
    """
    with Children() as children:
        threads = []
        for cluster in local_clusters(number):
            environment = {"TF_CONFIG": cluster.tf_config()}
            if cluster.index == 0:
                children.start(command, environment)
                continue
            process = children.start(command, environment, **_PIPED)
            thread = threading.Thread(
                target=_show,
                args=(process, f"worker {cluster.index}: "),
                daemon=True,
            )
            thread.start()
            threads.append(thread)
        status = _wait(children, grace_seconds)
        for thread in threads:
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


def _show(process: subprocess.Popen, prefix: str) -> None:
    for line in process.stdout:
        # A full disk or closed pipe: an undrained worker would hang.
        with contextlib.suppress(OSError):
            sys.stdout.write(f"{prefix}{line.rstrip()}\n")
            sys.stdout.flush()


def _wait(children: Children, grace_seconds: float) -> int:
    """Waits for all workers; returns the status of the first that failed."""
    codes: list[int | None] = [None]
    while not any(codes):
        codes = [process.poll() for process in children.processes]
        if codes == [0] * len(codes):
            return 0
        time.sleep(0.1)
    worker = next(number for number, code in enumerate(codes) if code)
    status = exit_status(codes[worker] or 0)
    others = [p for p in children.processes if p.poll() is None]
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
    for process in others:
        process.terminate()
    _wait_for(others, patience)
    return status


def _wait_for(
    processes: Sequence[subprocess.Popen], seconds: float | None
) -> None:
    end = time.monotonic() + (seconds or 0.0)
    with contextlib.suppress(subprocess.TimeoutExpired):
        for process in processes:
            process.wait(None if seconds is None else end - time.monotonic())
