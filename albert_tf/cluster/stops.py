"""Why a run ends before its last step, and the exit status that says so."""

import signal

# sysexits.h: a temporary failure; the same command may succeed.
TEMPORARY_FAILURE = 75
# sysexits.h: an error while writing.
WRITING_FAILED = 74
# The loss is no number any more: starting again would not help.
DIVERGED = 17

# What a supervisor starts again: lost peers and stuck readers, a wish to be
# moved (SIGTERM), and the ends that a system gives a process (killed for
# memory, segmentation fault, abort, bus error), as 128 + the signal's number.
RESTARTABLE = frozenset(
    (
        TEMPORARY_FAILURE,
        *(
            128 + number
            for number in (
                signal.SIGTERM,
                signal.SIGKILL,
                signal.SIGSEGV,
                signal.SIGABRT,
                signal.SIGBUS,
            )
        ),
    )
)


class RunStopped(Exception):
    """A run that ends before its last step; told in one line.

    Attributes:
        exit_code: of the program.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
