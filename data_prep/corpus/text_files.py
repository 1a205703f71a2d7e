"""Opens text files: gzipped or plain, complete or truncated, any line end.

Main entries: `open_text` and `HashedFile`.
"""

import contextlib
import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, TextIO

from albert_tf.config import UserError
from albert_tf.io.encoding import HEAD_BYTES, refuse_utf16

GZIP_SUFFIX = ".gz"

_GZIP_MAGIC = b"\x1f\x8b"
_BUFFER_BYTES = 1 << 17

# Opens a path with a mode as the built-in `open` does; only "rb" is asked.
OpenFile = Callable[[str, str], BinaryIO]


@contextlib.contextmanager
def open_text(
    path: str,
    open_file: OpenFile = open,
    on_damage: Callable[[], None] = lambda: None,
) -> Iterator[TextIO]:
    r"""Yields a file's text, whose lines end with \n whatever they ended with.

    A byte order mark is left out. A byte that is not UTF-8 is a lone
    surrogate, see PEP 383. A gzipped file is unpacked, whatever it is called;
    where it is cut or damaged `on_damage` is called, and the text ends.

    Raises:
        UserError: for a file that cannot be opened or read, that is UTF-16 or
            UTF-32, or that is not gzipped although it is called so.
    """
    try:
        with open_file(path, "rb") as file:
            binary = io.BufferedReader(_Raw(file.read), _BUFFER_BYTES)
            if _is_gzipped(path, binary):
                unpacking = _unpacking(binary, on_damage)
                binary = io.BufferedReader(_Raw(unpacking), _BUFFER_BYTES)
            refuse_utf16(path, binary.peek(HEAD_BYTES))
            yield io.TextIOWrapper(
                binary, encoding="utf-8-sig", errors="surrogateescape"
            )
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}.") from None


def _is_gzipped(path: str, file: io.BufferedReader) -> bool:
    """Returns whether a file begins as gzipped ones do; no UTF-8 does.

    A file called gzipped may be cut before it has begun, and must be one.
    """
    head = file.peek(len(_GZIP_MAGIC))[: len(_GZIP_MAGIC)]
    if not path.lower().endswith(GZIP_SUFFIX):
        return head == _GZIP_MAGIC
    if not _GZIP_MAGIC.startswith(head):
        raise UserError(
            f"{path} is not gzipped, though its name ends with {GZIP_SUFFIX}; "
            "rename or compress it."
        )
    return True


class _Raw(io.RawIOBase):
    """A function that reads bytes, as a file that can be buffered."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _unpacking(
    file: BinaryIO, on_damage: Callable[[], None]
) -> Callable[[int], bytes]:
    """Returns the `read` of a gzipped file, as far as it can be unpacked."""
    unpacked = gzip.GzipFile(fileobj=file, mode="rb")

    def read(size: int) -> bytes:
        try:
            return unpacked.read1(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            on_damage()
            return b""

    return read


class HashedFile(contextlib.AbstractContextManager):
    """Opens a file as `open_file` does; hashes and counts what is read.

    As a context it reads the rest at its end, so that `num_bytes` and `sha256`
    are of the whole file; after an error it does not.
    """

    def __init__(self, open_file: OpenFile) -> None:
        self._open_file = open_file
        self._digest = hashlib.sha256()
        self.num_bytes = 0

    def __call__(self, path: str, mode: str) -> "HashedFile":
        """Opens the file, once."""
        self._file = self._open_file(path, mode)
        return self

    @property
    def sha256(self) -> str:
        """The digest of the bytes read, in hexadecimal digits."""
        return self._digest.hexdigest()

    def read(self, size: int) -> bytes:
        """Returns the next bytes."""
        data = self._file.read(size)
        self._digest.update(data)
        self.num_bytes += len(data)
        return data

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            while kind is None and self.read(_BUFFER_BYTES):
                pass
        finally:
            self._file.close()
