"""Makes items ahead of their consumer, in a thread: `prefetch`."""

import functools
import math
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")

# Items that wait for their consumer, at most.
_DEPTH = 4
# Interval of checks while waiting, and the limit for a thread to end.
_POLL_SECONDS = 0.2
_JOIN_SECONDS = 5.0
_END = object()


class InputStalled(Exception):
    """Making an item exceeded the timeout, or was given up."""


def prefetch(
    make: Callable[[Item], Made],
    items: Iterable[Item],
    timeout: float = math.inf,
    give_up: Callable[[], bool] = lambda: False,
) -> Generator[Made, None, None]:
    """Yields make(item) for each item, computed ahead in a thread.

    An error in `make` is raised in place of its result.

    Raises:
        InputStalled: when a result took longer than `timeout` seconds, or
            `give_up` returned True while waiting.
    """
    ready: queue.SimpleQueue = queue.SimpleQueue()
    places = threading.Semaphore(_DEPTH)
    stopped = threading.Event()
    work = functools.partial(_work, make, items, ready, places, stopped)
    thread = threading.Thread(target=work, daemon=True, name="prefetch")
    thread.start()
    try:
        while True:
            made = _take(ready, timeout, give_up)
            if made is _END:
                return
            if isinstance(made, BaseException):
                raise made
            places.release()
            yield made
    finally:
        stopped.set()
        places.release()
        # The wait has a limit, since the thread may hang.
        thread.join(_JOIN_SECONDS)


def _work(
    make: Callable[[Item], Made],
    items: Iterable[Item],
    ready: queue.SimpleQueue,
    places: threading.Semaphore,
    stopped: threading.Event,
) -> None:
    """Fills the queue with results, or with the error that ended them."""
    try:
        for item in items:
            places.acquire()
            if stopped.is_set():
                return
            ready.put(make(item))
        ready.put(_END)
    except BaseException as error:
        ready.put(error)


def _take(
    ready: queue.SimpleQueue, timeout: float, give_up: Callable[[], bool]
) -> Any:
    """Returns the next result, or raises InputStalled."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return ready.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            if give_up() or time.monotonic() > deadline:
                raise InputStalled from None
