"""Files on disk and in buckets, under one set of functions.

A path with a scheme (`gs://bucket/run`) goes through TensorFlow's file
systems, and TensorFlow is loaded only then; with a scheme that TensorFlow has
not (`s3://`) it is read through `object_stores`. Any other path goes to the
operating system as it is. Every error is an OSError, wherever it arises.
"""

import builtins
import contextlib
import functools
import io
import os
import re
import shutil
import struct
import sys
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from errno import (
    EACCES,
    EDQUOT,
    EEXIST,
    EFBIG,
    EIO,
    ENOENT,
    ENOSPC,
    EOPNOTSUPP,
    EPROTO,
    errorcode,
)
from typing import IO, Any

from albert_tf.io import object_stores
from albert_tf.io.error_stream import stderr_to
from albert_tf.io.tensorflow_messages import reason_of

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")
# A temporary name: the file's own, this, and a number.
_TEMPORARY = ".tmp-"
# Few calls, however small the writes: one to a bucket takes tens of
# milliseconds.
BUFFER_BYTES = 1 << 20

# Errors of a full disk, of a user's full share of it, and of `ulimit -f`.
_DISK_FULL = (ENOSPC, EDQUOT, EFBIG)

Path = str | os.PathLike[str]

# Errors that zipfile raises for files that are damaged, or no zip files.
ZIP_FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    KeyError,
    # Encrypted, or an unknown compression.
    RuntimeError,
    struct.error,
)


def is_remote(path: Path) -> bool:
    """Returns whether a path has a scheme, and so needs TensorFlow."""
    return _SCHEME.match(os.fspath(path)) is not None


def open(path: Path, mode: str = "rb") -> IO[Any]:
    """Returns an open file; text is UTF-8."""
    text = None if "b" in mode else "utf-8"
    if not is_remote(path):
        buffering = BUFFER_BYTES if mode == "wb" else -1
        return builtins.open(path, mode, buffering, encoding=text)
    raw = _RemoteFile(os.fspath(path), f"{mode[0]}b")
    kind = io.BufferedReader if raw.readable() else io.BufferedWriter
    buffered = kind(raw, BUFFER_BYTES)
    return io.TextIOWrapper(buffered, encoding=text) if text else buffered


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO]:
    """Yields a file to write, which replaces `path` when it is complete.

    When writing fails nothing is left of it, and a file that had the name
    before stays. A pipe or device is written to, and not replaced.
    """
    path = os.fspath(path)
    if not is_remote(path) and os.path.exists(path) and not isfile(path):
        with naming(path, path), open(path, "wb") as file:
            yield file
        return
    temporary = temporary_name(path)
    try:
        with naming(path, temporary):
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                if not is_remote(path):
                    os.fsync(file.fileno())
            replace(temporary, path)
    except BaseException:
        # Another error must not hide the one that led here.
        with contextlib.suppress(OSError):
            remove(temporary)
        raise


@contextlib.contextmanager
def naming(path: Path, temporary: str) -> Iterator[None]:
    """Names `path` in errors of what is written to a temporary path first.

    Errors of `write` name no file at all.
    """
    try:
        yield
    except OSError as error:
        name = os.fsdecode(error.filename or temporary)
        # Only with a number does an error have a file.
        if error.errno is not None and name.startswith(temporary):
            error.filename, error.filename2 = os.fspath(path), None
        raise
    except _tensorflow_errors() as error:
        number = _disk_full_number(error)
        if not number and temporary in str(error):
            number = _number_in(str(error), errorcode) or EIO
        if not number:
            raise
        raise OSError(number, os.strerror(number), os.fspath(path)) from None


def is_disk_full(error: BaseException | None) -> bool:
    """Returns whether an error, or one that led to it, is of a full disk."""
    while error is not None:
        if _disk_full_number(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _disk_full_number(error: BaseException) -> int:
    """Returns the number of an error of a full disk, else 0."""
    if isinstance(error, OSError):
        return error.errno if error.errno in _DISK_FULL else 0
    if isinstance(error, _tensorflow_errors()):
        # Where memory runs out the error is of the same class.
        return _number_in(str(error), _DISK_FULL)
    return 0


def _number_in(text: str, numbers: Iterable[int]) -> int:
    """Returns the first number whose description is in a text, else 0."""
    return next((n for n in numbers if os.strerror(n) in text), 0)


def _tensorflow_errors() -> tuple[type[Exception], ...]:
    """Returns the class of TensorFlow's errors, if it is loaded."""
    if "tensorflow" not in sys.modules:
        return ()
    import tensorflow as tf

    return (tf.errors.OpError,)


def write(path: Path, content: bytes) -> None:
    """Writes a file, which gets its name when it is complete."""
    with replacing(path) as file:
        file.write(content)


def temporary_name(path: str) -> str:
    """Returns a new name for a file until it is complete.

    Processes on several machines may write one path at the same time.
    """
    return f"{path}{_TEMPORARY}{uuid.uuid4().int}"


def unfinished(name: str) -> str:
    """Returns the name that `replacing` gives to a temporary file, else ""."""
    found = re.fullmatch(rf"(.*){re.escape(_TEMPORARY)}\d+", name)
    return found[1] if found else ""


def replace(source: Path, target: Path) -> None:
    """Renames a file over an existing one, and flushes the change to disk."""
    if is_remote(target):
        with _gfile(target) as gfile:
            gfile.rename(source, target, overwrite=True)
        return
    os.replace(source, target)
    # The name is an entry of the directory, which is a file of its own.
    directory = os.open(os.path.dirname(target) or ".", os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def exists(path: Path) -> bool:
    """Returns whether there is a file or directory."""
    return _either(os.path.exists, "exists", path)


def isdir(path: Path) -> bool:
    """Returns whether there is a directory."""
    return _either(os.path.isdir, "isdir", path)


def isfile(path: Path) -> bool:
    """Returns whether there is a regular file."""
    if is_remote(path):
        return exists(path) and not isdir(path)
    return os.path.isfile(path)


def listdir(path: Path) -> list[str]:
    """Returns the names in a directory, sorted."""
    # Buckets give directories a slash at the end.
    names = _either(os.listdir, "listdir", path)
    return sorted(name.rstrip("/") for name in names)


def size(path: Path) -> int:
    """Returns the number of bytes in a file."""
    status = _either(os.stat, "stat", path)
    return status.length if is_remote(path) else status.st_size


def sizes(path: Path) -> dict[str, int]:
    """Returns the bytes of each file right in a directory, by sorted name.

    A directory that does not exist has none.
    """
    names = listdir(path) if isdir(path) else []
    paths = [os.path.join(path, name) for name in names]
    return {os.path.basename(p): size(p) for p in paths if isfile(p)}


def makedirs(path: Path) -> None:
    """Makes a directory and those above it, where missing."""
    _either(functools.partial(os.makedirs, exist_ok=True), "makedirs", path)


def remove(path: Path) -> None:
    """Removes a file."""
    _either(os.remove, "remove", path)


def remove_tree(path: Path) -> None:
    """Removes a directory with all that it holds, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        remove_local = functools.partial(shutil.rmtree, ignore_errors=True)
        _either(remove_local, "rmtree", path)


def _either(local: Callable[[Path], Any], remote: str, path: Path) -> Any:
    """Calls a function of the system, or the one of tf.io.gfile so named."""
    if not is_remote(path):
        return local(path)
    with _gfile(path) as gfile:
        return getattr(gfile, remote)(path)


@functools.cache
def _tensorflow() -> Any:
    """Returns TensorFlow, imported without its start-up log."""
    with builtins.open(os.devnull, "wb") as nowhere, stderr_to(nowhere):
        import tensorflow as tf
    return tf


@contextlib.contextmanager
def _gfile(path: Path) -> Iterator[Any]:
    """Yields tf.io.gfile or an ObjectStore; errors are raised as OSError."""
    tf = _tensorflow()
    scheme = os.fspath(path).partition("://")[0]
    if scheme not in tf.io.gfile.get_registered_schemes():
        with object_stores.os_errors(os.fspath(path)):
            yield object_stores.ObjectStore(scheme)
        return
    kinds = tf.errors
    numbers = {
        kinds.NotFoundError: ENOENT,
        kinds.AlreadyExistsError: EEXIST,
        kinds.PermissionDeniedError: EACCES,
        kinds.UnauthenticatedError: EACCES,
        kinds.ResourceExhaustedError: ENOSPC,
        kinds.UnimplementedError: EOPNOTSUPP,
        kinds.DataLossError: EIO,
    }
    try:
        yield tf.io.gfile
    except kinds.OpError as error:
        number = numbers.get(type(error), EPROTO)
        reason = reason_of(error.message or "") or os.strerror(number)
        raise OSError(number, reason, os.fspath(path)) from None


class _RemoteFile(io.RawIOBase):
    """A file of a TensorFlow file system with the interface of Python's."""

    def __init__(self, path: str, mode: str) -> None:
        self.name = path
        self._mode = mode
        with _gfile(path) as gfile:
            self._file = gfile.GFile(path, mode)
            if self.readable():
                # It would be opened, and found missing, at the first read.
                gfile.stat(path)

    def readable(self) -> bool:
        return self._mode == "rb"

    def writable(self) -> bool:
        return not self.readable()

    def seekable(self) -> bool:
        return self.readable()

    def readinto(self, buffer: Any) -> int:
        with _gfile(self.name):
            content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def write(self, content: Any) -> int:
        with _gfile(self.name):
            self._file.write(bytes(content))
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with _gfile(self.name):
            self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        with _gfile(self.name):
            return self._file.tell()

    def close(self) -> None:
        if not self.closed:
            try:
                with _gfile(self.name):
                    self._file.close()
            finally:
                super().close()
