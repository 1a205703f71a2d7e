"""Processes that a program starts, and that hear the signals it gets."""

import os
import signal
import subprocess
import types
from collections.abc import Mapping, Sequence
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Children:
    """Within the context, SIGTERM and SIGINT are passed on to the children.

    And not obeyed: what is to happen then is the children's to say.

    Attributes:
        processes: those that were started, in order.
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
        """Returns the running process; `environment` comes to the present one.

        Raises:
            OSError: when the command cannot be started.
        """
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            # A terminal sends Ctrl-C to a whole group; it would come twice,
            # and the second time means at once.
            process_group=0,
            **options,
        )
        self.processes.append(process)
        if self.received:
            # It came while this one was being started.
            process.send_signal(self.received)
        return process

    def _pass_on(self, number: int, frame: types.FrameType | None) -> None:
        self.received = signal.Signals(number)
        for process in self.processes:
            process.send_signal(number)


def exit_status(returncode: int) -> int:
    """Returns a child's exit status as a shell tells it."""
    return returncode if returncode >= 0 else 128 - returncode
