"""The error stream, which TensorFlow's libraries write to by themselves."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import IO


@contextlib.contextmanager
def stderr_to(file: IO[bytes]) -> Iterator[None]:
    """Redirects the error stream, also of processes started within."""
    sys.stderr.flush()
    stderr = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
