"""Displays of progress, which long jobs take."""

import contextlib
from collections.abc import Callable

# `with progress(unit) as show: ... show(done, total, name=number, ...)`.
Progress = Callable[[str], contextlib.AbstractContextManager[Callable]]


def no_progress(unit: str) -> contextlib.AbstractContextManager[Callable]:
    """Returns a progress display that shows nothing."""
    del unit
    return contextlib.nullcontext(lambda done, total=None, **beside: None)
