"""Opens text files: compressed or plain, complete or cut, any line end.

Main entries: `open_text` and `HashedFile`.
"""

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator
from typing import BinaryIO, TextIO

from albert_tf.config import UserError
from albert_tf.io.compression import DamagedFile, buffered, unpacked
from albert_tf.io.encoding import HEAD_BYTES, refuse_other_than_text

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
    surrogate, see PEP 383. A compressed file is unpacked, whatever it is
    called; where it is cut or damaged `on_damage` is called, and the text ends.

    Raises:
        UserError: for a file that cannot be opened or read, that is UTF-16 or
            UTF-32, or that is not compressed although it is called so.
    """
    try:
        with open_file(path, "rb") as file:
            stored = buffered(file.read)
            binary = unpacked(path, stored)
            if binary is not stored:
                binary = buffered(_until_damage(binary.read1, on_damage))
            refuse_other_than_text(path, binary.peek(HEAD_BYTES))
            yield io.TextIOWrapper(
                binary, encoding="utf-8-sig", errors="surrogateescape"
            )
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}.") from None


def _until_damage(
    read: Callable[[int], bytes], on_damage: Callable[[], None]
) -> Callable[[int], bytes]:
    """Returns a function that ends where a compressed file is damaged."""

    def read_on(size: int) -> bytes:
        try:
            return read(size)
        except DamagedFile:
            on_damage()
            return b""

    return read_on


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
