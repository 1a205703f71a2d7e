"""Signals that end a program: Ctrl-C (SIGINT) while it starts, SIGTERM.

Python's own handler raises KeyboardInterrupt wherever the program is. In the
middle of an import that gives a traceback, or an error of the library which is
being imported.
"""

import contextlib
import os
import signal
import sys
import types
from collections.abc import Iterator

LINE = "interrupted; start the same command again."


class EndAtOnce:
    """A handler of SIGINT that ends the process with a line and status 130.

    The line goes to the error stream of when the handler was made.
    """

    def __init__(self) -> None:
        self._stderr = os.dup(2)

    def __call__(self, number: int, frame: types.FrameType | None) -> None:
        """Writes the line and ends the process."""
        names = (a for a in sys.orig_argv if a.startswith("bin."))
        program = next(names, sys.argv[0]).removeprefix("bin.")
        with contextlib.suppress(OSError):
            os.write(self._stderr, f"{program}: {LINE}\n".encode())
        os._exit(128 + number)


class Terminated(BaseException):
    """A signal that ends a program, once it has removed what is unfinished.

    Attributes:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def ending_by_exception() -> Iterator[None]:
    """Ends the context by `Terminated` when SIGTERM or SIGHUP comes.

    Python itself would end the process, and leave a half-written file.
    Signals that are ignored, or handled otherwise, stay so.
    """

    def end(number: int, frame: types.FrameType | None) -> None:
        raise Terminated(number)

    numbers = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def prepare() -> None:
    """Sets the handler of a process that `python -m bin.PROGRAM` starts.

    Other processes, and those started with SIGINT ignored, are left as they
    are.
    """
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # "-m" is there until Python has found the module.
    if is_default and sys.argv[:1] == ["-m"]:
        signal.signal(signal.SIGINT, EndAtOnce())


def raise_from_now_on() -> None:
    """Restores Python's own handler, if `prepare` has replaced it."""
    if isinstance(signal.getsignal(signal.SIGINT), EndAtOnce):
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Ends the process at once by SIGINT within the context.

    Where Python's own handler is in place: not if SIGINT is ignored.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, EndAtOnce())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
