"""How much work there is, by a count that no busy machine changes."""

import contextlib
import sys


@contextlib.contextmanager
def calls_below(most):
    """Fails where functions of Python or C are called as often, or more.

    Whether what is within raises an error or not.
    """
    number = 0

    def count(frame, event, argument):
        nonlocal number
        number += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)
        assert number < most
