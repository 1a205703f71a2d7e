"""Counts the work of a function; unlike time, load does not change it."""

import contextlib
import sys


@contextlib.contextmanager
def steps_below(limit):
    """Fails if the body makes `limit` steps or more, with an error or without.

    A step is a line of Python that is run, in a loop each time, or a call of
    a function. What a function in C does within one call is not seen.
    """
    number = 0

    def trace(frame, event, argument):
        nonlocal number
        number += event in ("call", "line")
        return trace

    def count(frame, event, argument):
        nonlocal number
        number += event == "c_call"

    tracer, profiler = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(profiler)
        sys.settrace(tracer)
        assert number < limit
