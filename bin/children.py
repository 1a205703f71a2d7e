"""Child processes that receive the signals of their program."""

import os
import signal
import subprocess
import types
from collections.abc import Mapping, Sequence
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
