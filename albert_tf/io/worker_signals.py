"""Ctrl-C and worker processes, to which a terminal sends it too."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def workers_without_interrupts() -> Iterator[None]:
    """Starts processes that never get SIGINT, from their first moment on.

    The process that starts them reports it, and gets one that comes within
    the context at its end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
