"""Reads object stores through fsspec: `ObjectStore`, `read_ranges`.

fsspec comes with the package for a scheme: s3fs for s3://, gcsfs for gs://.
These repeat failed requests for some seconds; `retrying` outlasts longer
outages.
"""

import contextlib
import errno
import functools
import os
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, TypeVar

Result = TypeVar("Result")

# Pauses before the second try, the third and so on.
RETRY_SECONDS = (1.0, 5.0, 25.0)
# A further try would meet the same error.
LASTING = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.EROFS,
    errno.EOPNOTSUPP,
    errno.ENOSPC,
    errno.EDQUOT,
)
_BLOCK_BYTES = 1 << 24
# Requests at a time.
_CONCURRENT = 64


class ObjectStore:
    """Functions of tf.io.gfile that read, for paths of a scheme.

    They are called within `os_errors`.
    """

    def __init__(self, scheme: str) -> None:
        system = _file_system(scheme)
        self._system = system
        self.exists = system.exists
        self.isdir = system.isdir

    def listdir(self, path: str) -> list[str]:
        """Returns the names right below a prefix."""
        found = self._system.ls(path, detail=False)
        prefix = self._system._strip_protocol(path).rstrip("/") + "/"
        names = [name.removeprefix(prefix) for name in found]
        # A prefix may be an object too.
        return [name for name in names if name]

    def stat(self, path: str) -> types.SimpleNamespace:
        """Returns the `length` of an object, in bytes."""
        return types.SimpleNamespace(length=self._system.size(path))

    def GFile(self, path: str, mode: str) -> IO[bytes]:
        """Returns an open file; `mode` is "rb"."""
        if mode != "rb":
            self._write(path)
        return self._system.open(path, block_size=_BLOCK_BYTES)

    def _write(self, path: str, *_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "this scheme is only read", path)

    makedirs = remove = rmtree = rename = _write


def read_ranges(
    paths: Sequence[str], starts: Sequence[int], ends: Sequence[int]
) -> list[bytes]:
    """Returns the bytes `start` to `end` of each path, all of one scheme.

    Requests run concurrently. Those that fail, or bring too few bytes, are
    repeated.

    Raises:
        OSError: if they still fail after the last of `RETRY_SECONDS`.
    """
    found: list[Any] = [None] * len(paths)

    def fetch() -> list[bytes]:
        rows = [row for row, answer in enumerate(found) if answer is None]
        with os_errors(paths[0]):
            answers = system.cat_ranges(
                [paths[row] for row in rows],
                [starts[row] for row in rows],
                [ends[row] for row in rows],
                on_error="return",
                batch_size=_CONCURRENT,
            )
        failed: Exception | None = None
        for row, answer in zip(rows, answers, strict=True):
            size = ends[row] - starts[row]
            if isinstance(answer, Exception):
                failed = _as_os_error(answer, paths[row])
            elif len(answer) != size:
                text = f"{len(answer)} of {size} bytes came"
                failed = OSError(errno.EIO, text, paths[row])
            else:
                found[row] = answer
        if failed:
            raise failed
        return found

    system = _file_system(paths[0].partition("://")[0])
    return retrying(fetch)


def retrying(function: Callable[[], Result]) -> Result:
    """Returns the result of a function, called again when it fails.

    An OSError that may pass is repeated after each of `RETRY_SECONDS`, with a
    line on standard error.
    """
    for seconds in RETRY_SECONDS:
        try:
            return function()
        except OSError as error:
            if error.errno in LASTING:
                raise
            print(
                f"{os.fsdecode(error.filename or '')}: {error.strerror}; "
                f"trying again in {seconds:g} s",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(seconds)
    return function()


@contextlib.contextmanager
def os_errors(path: str) -> Iterator[None]:
    """Raises errors about a path as OSError.

    The packages have no class of errors in common.
    """
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        raise _as_os_error(error, path) from None


@functools.cache
def _file_system(scheme: str) -> Any:
    """Returns fsspec's file system for a scheme."""
    path = f"{scheme}://"
    try:
        import fsspec

        with os_errors(path):
            # A listing would be kept for as long as the process lives.
            return fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError as error:
        reason = f"{error} (requirements-buckets.txt)"
        raise OSError(errno.EOPNOTSUPP, reason, path) from None


def _as_os_error(error: Exception, path: str) -> OSError:
    kinds: dict[type[Exception], int] = {
        FileNotFoundError: errno.ENOENT,
        PermissionError: errno.EACCES,
        ValueError: errno.EOPNOTSUPP,  # the scheme is unknown
    }
    number = kinds.get(type(error), errno.EIO)
    reason = str(error) or type(error).__name__
    if isinstance(error, OSError):
        number, reason = error.errno or number, error.strerror or reason
    return OSError(number, " ".join(reason.split()), path)
