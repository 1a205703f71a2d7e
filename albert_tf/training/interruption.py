"""Graceful handling of SIGTERM and SIGINT."""

import os
import signal
import types
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interruption:
    """Records the first signal in the context; the second one terminates.

    Attributes:
        received: the signal, or None.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interruption":
        for number in _SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: types.FrameType | None) -> None:
        if self.received:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.received = signal.Signals(number)
        # Not print, whose lock the interrupted code may hold.
        os.write(
            2,
            f"{self.received.name}: saving after this step; the same signal "
            "again ends at once.\n".encode(),
        )
        previous = self._previous[self.received]
        # An embedding program may handle it as well; Python's own handler of
        # SIGINT would raise.
        if callable(previous) and previous is not signal.default_int_handler:
            previous(number, frame)
