"""Worker processes that map a function over items, in order."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from albert_tf.io.malloc import keep_freed_memory

_KEPT_BYTES = 64_000_000

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers(contextlib.AbstractContextManager):
    """Processes that work ahead of the consumer of their results.

    One worker is this process itself.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._pool = None
        if number == 1:
            keep_freed_memory(_KEPT_BYTES)
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
            with _without_interrupts():
                waiting.append(self._pool.submit(function, item))
            if len(waiting) > 2 * self._number:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=error[0] is None, cancel_futures=True)


def _begin_worker() -> None:
    """Prepares a worker, which ends when its parent ends, however it does."""
    # Without it workers side by side took a quarter more time.
    keep_freed_memory(_KEPT_BYTES)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Starts processes that never get SIGINT, which a terminal sends to all.

    The process that starts them reports it, and gets one that comes within
    the context at its end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
