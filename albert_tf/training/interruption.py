"""SIGTERM and SIGINT: noted, so that a run can save and end in order."""

import os
import signal
import types

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interruption:
    """Within the context, the first signal is noted and the second one ends.

    Attributes:
        received: the signal, or None.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, object] = {}

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
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: types.FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.received:
            # Whoever asks again does not want to wait.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.received = signal.Signals(number)
        # Not print: its lock may be held by what was interrupted.
        os.write(
            2,
            f"{name}: saving after this step; the same signal again ends at "
            "once.\n".encode(),
        )
        previous = self._previous[self.received]
        # Whoever embeds a run may want to know as well. Python's own handler
        # of SIGINT would raise.
        if callable(previous) and previous is not signal.default_int_handler:
            previous(number, frame)


def exit_code(number: int) -> int:
    """Returns the exit status that says which signal ended a program."""
    return 128 + number
