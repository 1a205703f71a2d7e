"""Worker processes that map a function over items, in order: `Workers`.

Also the type of progress displays, which long jobs take: `Progress`.
"""

import concurrent.futures
import contextlib
import ctypes
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from albert_tf.io.worker_signals import workers_without_interrupts

# Names of <malloc.h>, and how much freed memory a worker keeps at most.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64_000_000

Item = TypeVar("Item")
Result = TypeVar("Result")

# `with progress(unit) as show: ... show(done, total, name=number, ...)`.
Progress = Callable[[str], contextlib.AbstractContextManager[Callable]]


def no_progress(unit: str) -> contextlib.AbstractContextManager[Callable]:
    """Returns a progress display that shows nothing."""
    del unit
    return contextlib.nullcontext(lambda done, total=None, **beside: None)


class Workers(contextlib.AbstractContextManager):
    """Processes that work ahead of the consumer of their results.

    One worker is this process itself.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._pool = None
        if number == 1:
            _keep_freed_memory()
        else:
            # spawn: the threads of libraries do not survive a fork.
            self._pool = concurrent.futures.ProcessPoolExecutor(
                number,
                multiprocessing.get_context("spawn"),
                initializer=_begin_worker,
            )

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Yields the results in the order of `items`, few items in memory."""
        if self._pool is None:
            yield from map(function, items)
            return
        waiting: deque[concurrent.futures.Future] = deque()
        for item in items:
            # It starts a process while there are fewer than `number`.
            with workers_without_interrupts():
                waiting.append(self._pool.submit(function, item))
            if len(waiting) > 2 * self._number:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=error[0] is None, cancel_futures=True)


def _keep_freed_memory() -> None:
    """Makes glibc keep what is freed, for NumPy's next temporary array.

    Giving it back and having it mapped anew took workers that run side by
    side a quarter of their time.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)


def _begin_worker() -> None:
    """Prepares a worker, which ends when its parent ends, however it does."""
    _keep_freed_memory()
    parent = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
