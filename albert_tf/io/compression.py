"""Compressed files: gzip, bzip2, xz and Zstandard, by FORMATS.

Main entries: `open_plain`, `unpacked` and `packing`. What is damaged raises
DamagedFile when it is read.
"""

import bz2
import contextlib
import functools
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple, cast

from albert_tf.config import UserError
from albert_tf.io import files

_BUFFER_BYTES = 1 << 17


class DamagedFile(UserError):
    """A compressed file that cannot be unpacked to its end."""


class Format(NamedTuple):
    """A row of FORMATS.

    Attributes:
        name: as in messages.
        magics: the first bytes of such files, one or the other; text may
            begin with those of bzip2 alone.
        unpack: returns the unpacked file of an open one.
        pack: returns a file that writes packed bytes to an open one.
    """

    name: str
    magics: tuple[bytes, ...]
    unpack: Callable[[Any], Any]
    pack: Callable[[Any], Any]


class _Zstandard(io.RawIOBase):
    """Unpacks frames one after another; a cut one is an EOFError."""

    def __init__(self, file: IO[bytes], new_frame: Callable[[], Any]) -> None:
        self._file, self._new_frame = file, new_frame
        self._frame: Any = None
        self._packed = self._plain = b""

    def read1(self, size: int) -> bytes:
        """Returns at most `size` bytes; none at the end."""
        while not self._plain:
            self._packed = self._packed or self._file.read(_BUFFER_BYTES)
            if not self._packed:
                if self._frame:
                    raise EOFError
                return b""
            self._frame = self._frame or self._new_frame()
            self._plain = self._frame.decompress(self._packed)
            self._packed = b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        found, self._plain = self._plain[:size], self._plain[size:]
        return found


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise UserError(
            "Files ending with .zst need zstandard: pip install zstandard."
        ) from None
    return zstandard


def _unpack_zstandard(file: IO[bytes]) -> _Zstandard:
    # The largest window of `zstd --ultra --long=31`.
    unpacker = _zstandard().ZstdDecompressor(max_window_size=1 << 31)
    return _Zstandard(file, unpacker.decompressobj)


FORMATS = {
    ".gz": Format(
        "gzip",
        (b"\x1f\x8b",),
        lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
        # The header has no time: equal contents are equal bytes.
        lambda file: gzip.GzipFile("", "wb", fileobj=file, mtime=0),
    ),
    ".bz2": Format(
        "bzip2",
        (b"BZh",),
        bz2.BZ2File,
        functools.partial(bz2.BZ2File, mode="wb"),
    ),
    ".xz": Format(
        "xz",
        (b"\xfd7zXZ\x00",),
        lzma.LZMAFile,
        functools.partial(lzma.LZMAFile, mode="wb"),
    ),
    ".zst": Format(
        "Zstandard",
        # A file of pzstd begins with a frame to be skipped, of 16 kinds.
        (
            b"\x28\xb5\x2f\xfd",
            *(bytes([kind]) + b"*M\x18" for kind in range(0x50, 0x60)),
        ),
        _unpack_zstandard,
        lambda file: (
            _zstandard()
            .ZstdCompressor(write_checksum=True)
            .stream_writer(file, closefd=False)
        ),
    ),
}
SUFFIXES = tuple(FORMATS)


def plain_name(path: str) -> str:
    """Returns a path without the suffix of a compressed file."""
    return path[: len(path) - len(suffix_of(path))]


def suffix_of(path: str) -> str:
    """Returns the suffix of a compressed file, as it is written, or ""."""
    found = next((s for s in FORMATS if path.lower().endswith(s)), "")
    return path[len(path) - len(found) :]


class _Reader(io.RawIOBase):
    """A function that reads bytes, as a file that can be buffered."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def buffered(read: Callable[[int], bytes]) -> io.BufferedReader:
    """Returns a function that reads bytes as a buffered file."""
    return io.BufferedReader(_Reader(read), _BUFFER_BYTES)


def unpacked(path: str, file: io.BufferedReader) -> io.BufferedReader:
    """Returns an open file, or what it holds if it is compressed.

    That is decided by its first bytes; `path` is its name. Raises UserError
    for a file whose name says that it is compressed but is not.
    """
    suffix = suffix_of(path).lower()
    head = file.peek(8)
    if suffix:
        format = FORMATS[suffix]
        # A file may be cut before it has begun.
        if not any(head[: len(m)] == m[: len(head)] for m in format.magics):
            raise UserError(
                f"{path} is not a {format.name} file, though its name ends "
                f"with {suffix}; rename or compress it."
            )
    else:
        found = (f for f in FORMATS.values() if head.startswith(f.magics))
        first = next(found, None)
        # Text may begin with the three letters of bzip2.
        if first is None or (first.name == "bzip2" and not _is_bzip2(head)):
            return file
        format = first
    return buffered(_reading(path, format, format.unpack(file)))


def _is_bzip2(head: bytes) -> bool:
    """Returns whether a level and the mark of a block, or the end, follow."""
    return head[3:4].isdigit() and head[4:8] in (b"1AY&", b"\x17rE8")


def _reading(path: str, format: Format, file: Any) -> Callable[[int], bytes]:
    def read(size: int) -> bytes:
        try:
            return file.read1(size)
        except Exception as error:
            # Only errors of the system have a number.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            if not isinstance(error, _faults()):
                raise
            raise DamagedFile(
                f"{path}: the {format.name} file is cut or damaged; copy or "
                "download it again."
            ) from None

    return read


def _faults() -> tuple[type[Exception], ...]:
    faults = (EOFError, OSError, zlib.error, lzma.LZMAError)
    with contextlib.suppress(ImportError):
        import zstandard

        return (*faults, zstandard.ZstdError)
    return faults


@contextlib.contextmanager
def open_plain(path: str) -> Iterator[io.BufferedReader]:
    """Yields a file's bytes, unpacked where it is compressed."""
    with files.open(path) as file:
        yield unpacked(path, cast(io.BufferedReader, file))


@contextlib.contextmanager
def packing(file: IO[bytes], path: str) -> Iterator[IO[bytes]]:
    """Yields what writes to a file, compressed as its name `path` says."""
    suffix = suffix_of(path).lower()
    if not suffix:
        yield file
        return
    with FORMATS[suffix].pack(file) as packed:
        yield packed
