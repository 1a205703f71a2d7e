"""glibc's malloc, for programs whose arrays are large and short-lived."""

import contextlib
import ctypes
import os

# Parameters of mallopt (<malloc.h>), by the variable of the environment that
# sets each too and takes precedence.
_PARAMETERS = {
    "MALLOC_TRIM_THRESHOLD_": -1,
    "MALLOC_MMAP_THRESHOLD_": -3,
    "MALLOC_ARENA_MAX": -8,
}


def keep_freed_memory(num_bytes: int) -> None:
    """Makes glibc keep up to `num_bytes` that are freed, for the next arrays.

    By default it returns arrays above 32 MB, and the end of the heap, to the
    kernel, which maps and zeroes their pages anew for each step.
    """
    _set("MALLOC_TRIM_THRESHOLD_", num_bytes)
    _set("MALLOC_MMAP_THRESHOLD_", num_bytes)


def limit_arenas() -> None:
    """Limits glibc to one arena of memory per core instead of eight.

    Memory that compiling has freed in the arena of one thread cannot be used
    by another: training `base` took 4 % more.
    """
    _set("MALLOC_ARENA_MAX", os.cpu_count() or 1)


def _set(variable: str, value: int) -> None:
    if variable not in os.environ:
        # Another C library has no mallopt.
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).mallopt(_PARAMETERS[variable], value)
