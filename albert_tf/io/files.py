"""Files on disk and in buckets, under one set of functions.

A path with a scheme (`gs://bucket/run`) goes through TensorFlow's file
systems, and TensorFlow is loaded only then; any other path goes to the
operating system as it is. Every fault is an OSError, wherever it arises.
"""

import builtins
import contextlib
import io
import os
import re
import shutil
import struct
import tempfile
import uuid
import zipfile
import zlib
from collections.abc import Collection, Iterator
from errno import EACCES, EEXIST, EIO, ENOENT, ENOSPC, EOPNOTSUPP, EPROTO
from typing import IO, Any, BinaryIO

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")
# A temporary name: the file's own, this, and whose it is.
_TEMPORARY = ".tmp-"
# Few calls, whatever the size of what is written: one to a bucket takes tens
# of milliseconds.
_BUFFER_BYTES = 1 << 20

Path = str | os.PathLike[str]

# What zipfile raises for files that are damaged, or no zip files.
ZIP_FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    KeyError,
    # A bit that says encrypted, or packed in a way that it does not know.
    RuntimeError,
    NotImplementedError,
    struct.error,
)


def is_remote(path: Path) -> bool:
    """Returns whether a path has a scheme, and so needs TensorFlow."""
    return _SCHEME.match(os.fspath(path)) is not None


def open(path: Path, mode: str = "rb") -> IO[Any]:
    """Returns an open file; text is UTF-8.

    Args:
        path: of the file.
        mode: "r", "w" or "a", and "b" for bytes.

    Raises:
        OSError: when it cannot be opened; also from the file later on.
    """
    text = None if "b" in mode else "utf-8"
    if not is_remote(path):
        buffering = _BUFFER_BYTES if mode == "wb" else -1
        return builtins.open(path, mode, buffering, encoding=text)
    raw = _RemoteFile(os.fspath(path), f"{mode[0]}b")
    kind = io.BufferedReader if raw.readable() else io.BufferedWriter
    buffered = kind(raw, _BUFFER_BYTES)
    return io.TextIOWrapper(buffered, encoding=text) if text else buffered


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Gives a file to write, which gets its name when it is whole and kept.

    When the writing fails nothing is left of it, and what had the name
    before stays.
    """
    path = os.fspath(path)
    temporary = temporary_name(path)
    try:
        with _open_beside(path, temporary) as file:
            yield file
            file.flush()
            if not is_remote(path):
                os.fsync(file.fileno())
        replace(temporary, path)
    except BaseException:
        # The fault that led here is the one to tell.
        with contextlib.suppress(OSError):
            remove(temporary)
        raise


def _open_beside(path: str, temporary: str) -> BinaryIO:
    """Returns the temporary file of a path, by whose name faults are told."""
    try:
        return open(temporary, "wb")
    except OSError as error:
        error.filename = path
        raise


def write(path: Path, content: bytes) -> None:
    """Writes a file, which gets its name when it is whole and kept."""
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[str]:
    """Gives a new directory on disk, beside `path`, to be renamed to it.

    No other file or directory has its name; it is removed with the context
    unless it was renamed.
    """
    # Not `_TEMPORARY`, after which only files are looked for.
    path = os.path.abspath(path)
    directory = f"{path}.writing-{uuid.uuid4().hex[:12]}"
    try:
        os.makedirs(directory)
    except OSError as error:
        error.filename = path
        raise
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def is_new_directory(found: str, name: str) -> bool:
    """Returns whether `new_directory` gave a directory to become `name`."""
    pattern = rf"{re.escape(name)}\.writing-[0-9a-f]{{12}}(\.old)?"
    return re.fullmatch(pattern, found) is not None


@contextlib.contextmanager
def local_directory(
    directory: Path, last: str, *, replaces: Collection[str] = ()
) -> Iterator[str]:
    """Gives a directory on disk for what is to be written to `directory`.

    It is `directory` itself where that is on disk. Else it is a temporary
    one, whose files go to the bucket when the body is done; when the body
    fails, nothing is changed there.

    Args:
        directory: made where missing.
        last: the file that a reader looks for first; what lacks it is not
            taken for whole.
        replaces: names in a bucket's directory that are removed where the
            body wrote none of that name; all other names stay.
    """
    directory = os.fspath(directory)
    if not is_remote(directory):
        makedirs(directory)
        yield directory
        return
    with tempfile.TemporaryDirectory() as local:
        yield local
        _upload(local, directory.rstrip("/"), last, replaces)


def _upload(
    source: str, target: str, last: str, replaces: Collection[str]
) -> None:
    """Copies the files of a directory on disk into one in a bucket.

    A bucket renames no directories. So what stands there stays until all
    is there under temporary names; then `last` goes first and comes last,
    that at no time the one's and the other's files look like a whole.
    """
    names = sorted(_files_below(source), key=lambda name: name == last)
    arriving = {n: f"{target}/{n}{_TEMPORARY}{os.getpid()}" for n in names}
    try:
        for place in set(map(os.path.dirname, arriving.values())):
            makedirs(place)
        for name, arrived in arriving.items():
            with (
                open(os.path.join(source, name)) as reader,
                open(arrived, "wb") as writer,
            ):
                shutil.copyfileobj(reader, writer, _BUFFER_BYTES)
        if isfile(f"{target}/{last}"):
            remove(f"{target}/{last}")
        for name, arrived in arriving.items():
            replace(arrived, f"{target}/{name}")
    except BaseException:
        # The fault that led here is the one to tell.
        for arrived in arriving.values():
            with contextlib.suppress(OSError):
                remove(arrived)
        raise
    for name in set(_files_below(target)).difference(names):
        written = name.split("/")[0].split(_TEMPORARY)[0]
        if written in replaces:
            remove(f"{target}/{name}")


def _files_below(directory: str, within: str = "") -> Iterator[str]:
    """Yields the names of a directory's files, those deeper as "a/b"."""
    for name in listdir(os.path.join(directory, within)):
        place = os.path.join(within, name)
        if isdir(os.path.join(directory, place)):
            yield from _files_below(directory, place)
        else:
            yield place


def temporary_name(path: str) -> str:
    """Returns a new name for a file until it is whole.

    Processes on several machines may write one path at the same time.
    """
    return f"{path}{_TEMPORARY}{uuid.uuid4().int}"


def unfinished(name: str) -> str:
    """Returns the name of the file that `replacing` writes as `name`.

    Empty where it writes under no such name.
    """
    found = re.fullmatch(rf"(.*){re.escape(_TEMPORARY)}\d+", name)
    return found[1] if found else ""


def replace(source: Path, target: Path) -> None:
    """Renames a file over whatever has the name, and keeps it so on disk."""
    if is_remote(target):
        with _as_os_errors(target) as gfile:
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
    if is_remote(path):
        with _as_os_errors(path) as gfile:
            return gfile.exists(path)
    return os.path.exists(path)


def lexists(path: Path) -> bool:
    """Returns whether anything has the name, be it a link to nothing."""
    return exists(path) if is_remote(path) else os.path.lexists(path)


def isdir(path: Path) -> bool:
    """Returns whether there is a directory."""
    if is_remote(path):
        with _as_os_errors(path) as gfile:
            return gfile.isdir(path)
    return os.path.isdir(path)


def isfile(path: Path) -> bool:
    """Returns whether there is a regular file."""
    if is_remote(path):
        return exists(path) and not isdir(path)
    return os.path.isfile(path)


def listdir(path: Path) -> list[str]:
    """Returns the names in a directory, sorted."""
    if is_remote(path):
        with _as_os_errors(path) as gfile:
            # Buckets give directories a slash at the end.
            return sorted(name.rstrip("/") for name in gfile.listdir(path))
    return sorted(os.listdir(path))


def size(path: Path) -> int:
    """Returns the number of bytes in a file."""
    if is_remote(path):
        with _as_os_errors(path) as gfile:
            return gfile.stat(path).length
    return os.path.getsize(path)


def sizes(path: Path) -> dict[str, int]:
    """Returns the bytes of each file right in a directory, by sorted name.

    A directory that does not exist has none.
    """
    paths = {
        name: os.path.join(path, name)
        for name in (listdir(path) if isdir(path) else ())
    }
    return {name: size(file) for name, file in paths.items() if isfile(file)}


def makedirs(path: Path) -> None:
    """Makes a directory and those above it, where missing."""
    if is_remote(path):
        with _as_os_errors(path) as gfile:
            gfile.makedirs(path)
    else:
        os.makedirs(path, exist_ok=True)


def remove(path: Path) -> None:
    """Removes a file."""
    if is_remote(path):
        with _as_os_errors(path) as gfile:
            gfile.remove(path)
    else:
        os.remove(path)


def remove_tree(path: Path) -> None:
    """Removes a directory with all that it holds, if it exists."""
    if is_remote(path):
        with (
            contextlib.suppress(FileNotFoundError),
            _as_os_errors(path) as gfile,
        ):
            gfile.rmtree(path)
    else:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _as_os_errors(path: Path) -> Iterator[Any]:
    """Gives tf.io.gfile, and raises its errors as OSError."""
    import tensorflow as tf

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
        reason = error.message or os.strerror(number)
        raise OSError(number, reason, os.fspath(path)) from None


class _RemoteFile(io.RawIOBase):
    """A file of a TensorFlow file system, as Python's own files are."""

    def __init__(self, path: str, mode: str) -> None:
        self.name = path
        self._mode = mode
        with _as_os_errors(path) as gfile:
            self._file = gfile.GFile(path, mode)
            if self.readable():
                # It would be opened, and found missing, at the first read.
                self._file.size()

    def readable(self) -> bool:
        return self._mode == "rb"

    def writable(self) -> bool:
        return not self.readable()

    def seekable(self) -> bool:
        return self.readable()

    def readinto(self, buffer: Any) -> int:
        with _as_os_errors(self.name):
            content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def write(self, content: Any) -> int:
        with _as_os_errors(self.name):
            self._file.write(bytes(content))
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with _as_os_errors(self.name):
            self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        with _as_os_errors(self.name):
            return self._file.tell()

    def close(self) -> None:
        if not self.closed:
            try:
                with _as_os_errors(self.name):
                    self._file.close()
            finally:
                super().close()
