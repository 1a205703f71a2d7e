"""Opens text files as they come: gzipped or not, whole or cut, any line end.

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
    surrogate, see PEP 383.

    Args:
        path: the file; a gzipped one is unpacked, whatever it is called.
        open_file: opens it.
        on_damage: is called where a gzipped file is cut or damaged; the text
            ends there.

    Raises:
        UserError: for a file that cannot be opened or read, that is UTF-16 or
            UTF-32, or that is not gzipped although it is called so.
    """
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open_file(path, "rb"))
            binary = io.BufferedReader(_Raw(file), _BUFFER_BYTES)
            if _is_gzipped(path, binary):
                unpacking = _Unpacking(binary, on_damage)
                binary = io.BufferedReader(unpacking, _BUFFER_BYTES)
            refuse_utf16(path, binary.peek(HEAD_BYTES))
            yield io.TextIOWrapper(
                binary, encoding="utf-8-sig", errors="surrogateescape"
            )
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}.") from None


def _is_gzipped(path: str, file: io.BufferedReader) -> bool:
    """Returns whether a file begins as gzipped ones do.

    No UTF-8 does. A file called gzipped may be cut before it has begun.

    Raises:
        UserError: if it is called gzipped and is not.
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
    """A binary file of any kind, as one that can be buffered."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, size: int) -> bytes:
        return self._file.read(size)


class _Unpacking(_Raw):
    """The content of a gzipped file, as far as it can be unpacked."""

    def __init__(self, file: BinaryIO, on_damage: Callable[[], None]) -> None:
        super().__init__(gzip.GzipFile(fileobj=file, mode="rb"))
        self._on_damage = on_damage

    def _read(self, size: int) -> bytes:
        try:
            return self._file.read1(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self._on_damage()
            return b""


class HashedFile(_Raw):
    """A binary file that is hashed and counted while it is read.

    As a context it reads the rest at its end, so that `num_bytes` and `sha256`
    are of the whole file; after an error it does not.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._digest = hashlib.sha256()
        self.num_bytes = 0

    @property
    def sha256(self) -> str:
        """The digest of the bytes read, in hexadecimal digits."""
        return self._digest.hexdigest()

    def _read(self, size: int) -> bytes:
        data = super()._read(size)
        self._digest.update(data)
        self.num_bytes += len(data)
        return data

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Reads the rest unless there was an error, and closes the file."""
        try:
            while kind is None and self._read(_BUFFER_BYTES):
                pass
        finally:
            self.close()

    def close(self) -> None:
        """Closes the file."""
        if not self.closed:
            self._file.close()
        super().close()
