"""Exit codes and signals of runs that end before their last step."""

import contextlib
import os
import signal
import threading
import types
from collections.abc import Iterator

# EX_TEMPFAIL of sysexits.h: the same command may succeed.
TEMPORARY_FAILURE = 75
# EX_DATAERR of sysexits.h: some of the input could not be used.
BAD_DATA = 65
# EX_IOERR of sysexits.h.
WRITING_FAILED = 74
# The loss is not finite: starting again would not help.
DIVERGED = 17


def signals_to_handle() -> list[signal.Signals]:
    """Returns SIGTERM, SIGINT and, unless it is ignored (nohup), SIGHUP."""
    handled = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        handled.append(signal.SIGHUP)
    return handled


class RunStopped(Exception):
    """A command ends early, or with faults; one line says why."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Interruption:
    """Records the first SIGTERM, SIGINT or SIGHUP; a second one terminates.

    SIGHUP stays ignored where it is (nohup).
    """

    received: signal.Signals | None = None

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handles signals within the context, in the main thread only."""
        # Python lets no other thread set handlers.
        is_main = threading.current_thread() is threading.main_thread()
        handled = signals_to_handle() if is_main else []
        self._previous = {n: signal.signal(n, self._handle) for n in handled}
        try:
            yield
        finally:
            for number, handler in self._previous.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: types.FrameType | None) -> None:
        if self.received:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.received = signal.Signals(number)
        text = (
            f"{self.received.name}: saving after this step; the same signal "
            "again ends at once.\n"
        )
        # The interrupted code may hold the lock of print. The signal may have
        # ended what reads the line too: a closed terminal, tee after Ctrl-C.
        with contextlib.suppress(OSError):
            os.write(2, text.encode())
        previous = self._previous[self.received]
        # An embedding program may handle it as well; Python's own handler of
        # SIGINT would raise.
        if callable(previous) and previous is not signal.default_int_handler:
            previous(number, frame)
