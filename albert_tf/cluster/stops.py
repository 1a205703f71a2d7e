"""Exit codes of runs that end before their last step."""

import signal

# EX_TEMPFAIL of sysexits.h: the same command may succeed.
TEMPORARY_FAILURE = 75
# EX_IOERR of sysexits.h.
WRITING_FAILED = 74
# The loss is not finite: starting again would not help.
DIVERGED = 17

# Ends after which a supervisor starts the run again: lost workers and stalled
# readers, preemption (SIGTERM), and kills by the system (out of memory,
# segmentation fault, abort, bus error) as 128 + signal.
_SIGNALS = ("SIGTERM", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS")
RESTARTABLE = frozenset(
    (TEMPORARY_FAILURE, *(128 + signal.Signals[name] for name in _SIGNALS))
)


class RunStopped(Exception):
    """A run ends before its last step; the message is one line.

    Attributes:
        exit_code: of the program.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
