"""TFRecord files: a frame with checksums around every record.

`write_records` and `read_records` need no TensorFlow. A frame is the record's
length (8 bytes, little endian), a checksum of these (4), the record, and a
checksum of it (4); a file is its frames, nothing else.
The checksum is a masked CRC32C (tensorflow/core/lib/io/record_writer.h).
"""

import hashlib
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from typing import IO

import google_crc32c
import numpy as np

from albert_tf.config import UserError
from albert_tf.io import files

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_HEADER_BYTES = _LENGTH.size + _CHECKSUM.size
FOOTER_BYTES = _CHECKSUM.size


def write_records(file: IO, records: Iterable[bytes]) -> tuple[int, int, str]:
    """Returns the number of records, of bytes, and the bytes' sha256.

    `file` is any binary file: it is written from front to back.
    """
    num_records = num_bytes = 0
    digest = hashlib.sha256()
    for record in records:
        length = _LENGTH.pack(len(record))
        frame = b"".join((length, _checksum(length), record, _checksum(record)))
        file.write(frame)
        digest.update(frame)
        num_records += 1
        num_bytes += len(frame)
    return num_records, num_bytes, digest.hexdigest()


def read_records(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yields the records of a file, one in memory at a time.

    Raises:
        UserError: where the file is missing, cut or changed; it names the
            file, the record's number and where the record begins.
    """
    path = os.fspath(path)
    try:
        with files.open(path) as file:
            yield from _read_frames(file, path, files.size(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None


def _read_frames(file: IO, path: str, num_bytes: int) -> Iterator[bytes]:
    position = number = 0
    while position < num_bytes:
        where = f"{path}, record {number} at byte {position}"
        header = file.read(_HEADER_BYTES)
        length = header[: _LENGTH.size]
        whole = len(header) == _HEADER_BYTES
        if whole and header[_LENGTH.size :] != _checksum(length):
            raise UserError(
                f"{where}: the checksum of its length is wrong. The file "
                "was damaged or is no TFRecord file."
            )
        end = position + _HEADER_BYTES + FOOTER_BYTES
        end += _LENGTH.unpack(length)[0] if whole else 0
        # The length is checked before the record is read: it may be any number.
        if not whole or end > num_bytes:
            raise UserError(
                f"{where}: the file ends within it, at byte {num_bytes}; it "
                "was cut. Copy it again."
            )
        record = file.read(end - position - _HEADER_BYTES - FOOTER_BYTES)
        if not is_intact(record, file.read(FOOTER_BYTES)):
            raise UserError(
                f"{where}: its checksum is wrong. The file was damaged; "
                "copy it again."
            )
        yield record
        position, number = end, number + 1


def record_spans(descriptor: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns offset and length `[records]` of each record in a file.

    The file is trusted: its sha256 has been checked.
    """
    offsets, lengths = [], []
    num_bytes = os.fstat(descriptor).st_size
    position = 0
    if num_bytes:
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
            while position < num_bytes:
                (length,) = _LENGTH.unpack_from(data, position)
                offsets.append(position + _HEADER_BYTES)
                lengths.append(length)
                position += _HEADER_BYTES + length + FOOTER_BYTES
    return np.array(offsets, np.int64), np.array(lengths, np.int64)


def is_intact(record: bytes, footer: bytes) -> bool:
    """Returns whether the bytes behind a record are its checksum."""
    return footer == _checksum(record)


def _checksum(data: bytes) -> bytes:
    return _CHECKSUM.pack(masked_crc(data))


def masked_crc(data: bytes) -> int:
    """Returns the CRC-32C of data as TensorFlow's files hold it."""
    crc = google_crc32c.value(data)
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF
