"""Reads TensorFlow's checkpoint files safely: `read_index`, `read_variable`.

A checkpoint `PREFIX` is `PREFIX.index`, a sorted table in the form of LevelDB
with the type, shape and location of every variable, and
`PREFIX.data-0000i-of-0000n`, the values (tensorflow/core/util/tensor_bundle,
tensorflow/core/lib/io/table).

`tf.train.load_checkpoint` trusts an index with valid checksums: a negative
size or an unknown type aborts the process, and a huge shape is allocated
first. Here every number is compared with the sizes of the files before.
"""

import dataclasses
import functools
import math
import os
import stat
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.io.json_files import read_at_most
from albert_tf.modeling.weights.stored_weights import to_float32
from albert_tf.records.tfrecord import masked_crc

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER_BYTES = 48
# A model of a thousand blocks that share nothing, with the slots of its
# optimizer, is below these.
_MAX_INDEX_BYTES = 1 << 24
_MAX_VARIABLES = 1 << 17
_MAX_NAME_BYTES = 512
_MAX_AXES = 32

# DataType -> its name, and how it is read; others are not read.
_FLOAT_TYPES = {
    1: ("float32", "<f4"),
    2: ("float64", "<f8"),
    14: ("bfloat16", "<u2"),
    19: ("float16", "<f2"),
}
_MALFORMED = "a block of its index is malformed"


@dataclasses.dataclass(frozen=True)
class StoredVariable:
    """The index entry of a variable.

    Its bytes are `size` from `offset` in the data file `path`; `checksum` is
    their masked CRC32C.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: str
    offset: int
    size: int
    checksum: int


def read_index(prefix: str) -> dict[str, StoredVariable]:
    """Returns the variables of the checkpoint `prefix` by name, without values.

    Raises:
        UserError: when a file is missing or no regular file, or the index is
            damaged or contradicts itself or the sizes of the data files.
    """
    from tensorflow.core.protobuf import tensor_bundle_pb2

    try:
        table = _table(read_at_most(prefix + ".index", _MAX_INDEX_BYTES))
        key, value = next(table, (b"", b""))
        require(not key and bool(value), "its index has no header")
        header = tensor_bundle_pb2.BundleHeaderProto.FromString(value)
        require(
            not header.endianness,
            "its numbers are big endian, which is not supported",
        )
        parse = tensor_bundle_pb2.BundleEntryProto.FromString
        variables = [
            _variable(key, parse(value), prefix, header.num_shards)
            for key, value in table
            # The parts of a partitioned variable have keys that begin with 0.
            if not key.startswith(b"\0")
        ]
        size_of = functools.cache(_file_size)
        for variable in variables:
            _check_place(variable, size_of(variable.path))
    except DecodeError:
        reason = "an entry of its index is malformed"
        raise _unreadable(prefix, reason) from None
    except ValueError as error:
        raise _unreadable(prefix, str(error)) from None
    return {variable.name: variable for variable in variables}


def read_variable(prefix: str, variable: StoredVariable) -> np.ndarray:
    """Returns the values of a variable as finite float32, float64 rounded.

    Raises:
        UserError: when they are of another type, damaged, or not finite; the
            line names checkpoint and variable.
    """
    known = dict(_FLOAT_TYPES.values())
    require(
        variable.dtype in known,
        f"{prefix}: {variable.name} is of type {variable.dtype}; expected one "
        f"of {', '.join(known)}.",
    )
    try:
        with files.open(variable.path) as file:
            file.seek(variable.offset)
            data = file.read(variable.size)
    except OSError as error:
        reason = f"{variable.path}: {error.strerror}"
        raise _unreadable(prefix, reason) from None
    if len(data) != variable.size or masked_crc(data) != variable.checksum:
        raise _unreadable(
            prefix,
            f"the checksum of {variable.name} is wrong; {variable.path} is "
            "damaged",
        )
    value = to_float32(np.frombuffer(data, known[variable.dtype]))
    value = value.reshape(variable.shape)
    require(
        bool(np.isfinite(value).all()),
        f"{prefix}: {variable.name} holds NaN or infinity.",
    )
    return value


def _unreadable(prefix: str, reason: str) -> UserError:
    reason = reason.removesuffix(".")
    return UserError(
        f"{prefix} is not a readable TensorFlow checkpoint: {reason}."
    )


def _file_size(path: str) -> int:
    """Returns the size of a regular file; ValueError where it is none."""
    name = os.path.basename(path)
    try:
        if files.is_remote(path):
            return files.size(path)
        status = os.stat(path)
    except FileNotFoundError:
        raise ValueError(f"{name} is missing") from None
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror}") from None
    # Opening a pipe would wait for ever.
    require(stat.S_ISREG(status.st_mode), f"{name} is not a file")
    return status.st_size


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys, in increasing order, and values of a table."""
    require(
        len(data) >= _FOOTER_BYTES and data.endswith(_MAGIC),
        "its index is truncated or another kind of file",
    )
    footer = data[-_FOOTER_BYTES:]
    # The first handle is that of the block of statistics.
    _, _, position = _handle(footer, 0)
    start, size, _ = _handle(footer, position)
    last, end, count = None, 0, 0
    for _, handle in _block(data, start, size):
        start, size, _ = _handle(handle, 0)
        # Overlapping blocks would make a small file slow to read.
        require(start >= end, "its index has blocks that overlap")
        end = start + size
        for key, value in _block(data, start, size):
            count += 1
            require(last is None or key > last, "its index is not in order")
            require(
                count <= _MAX_VARIABLES,
                f"it has more than {_MAX_VARIABLES} entries",
            )
            last = key
            yield key, value


def _handle(data: bytes, position: int) -> tuple[int, int, int]:
    """Returns the start and size of a block, and the end of the handle."""
    start, position = _varint(data, position)
    size, position = _varint(data, position)
    return start, size, position


def _block(data: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the entries of a block; keys share prefixes with the last one."""
    end = start + size
    trailer = data[end : end + 5]
    require(
        len(trailer) == 5
        and masked_crc(data[start : end + 1])
        == int.from_bytes(trailer[1:], "little"),
        "a checksum in its index is wrong; it is damaged",
    )
    require(not trailer[0], "its index is compressed, which is not supported")
    block = data[start:end]
    num_restarts = int.from_bytes(block[-4:], "little")
    limit = len(block) - 4 - 4 * num_restarts
    require(limit >= 0, _MALFORMED)
    position, key = 0, b""
    while position < limit:
        shared, position = _varint(block, position)
        unshared, position = _varint(block, position)
        length, position = _varint(block, position)
        middle = position + unshared
        require(
            shared <= len(key)
            and middle + length <= limit
            and shared + unshared <= _MAX_NAME_BYTES,
            _MALFORMED,
        )
        key = key[:shared] + block[position:middle]
        position = middle + length
        yield key, block[middle:position]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a number of 7 bits a byte, and the position after it."""
    value = 0
    for number, byte in enumerate(data[position : position + 10]):
        value |= (byte & 127) << 7 * number
        if byte < 128:
            return value & (1 << 64) - 1, position + number + 1
    raise ValueError("a number in its index has no end")


def _variable(
    key: bytes, entry: Any, prefix: str, num_shards: int
) -> StoredVariable:
    """Returns a checked entry (BundleEntryProto)."""
    name = key.decode("utf-8", "replace")
    require(
        name.isprintable() and "\N{REPLACEMENT CHARACTER}" not in name,
        f"{key!r} is no name of a variable",
    )
    require(
        not entry.slices,
        f"{name} is stored in parts (a partitioned variable), which is not "
        "supported; save it as one",
    )
    unknown = f"number {entry.dtype} of DataType", None
    dtype, code = _FLOAT_TYPES.get(entry.dtype, unknown)
    shape = tuple(axis.size for axis in entry.shape.dim)
    shown = f"{name} has shape [{', '.join(map(str, shape[:8]))}]"
    require(
        len(shape) <= _MAX_AXES and min(shape, default=1) > 0,
        f"{shown}, which is not possible",
    )
    require(
        not code or math.prod(shape) * np.dtype(code).itemsize == entry.size,
        f"{shown} of {dtype} and is stored in {entry.size} bytes",
    )
    return StoredVariable(
        name,
        dtype,
        shape,
        f"{prefix}.data-{entry.shard_id:05d}-of-{num_shards:05d}",
        entry.offset,
        entry.size,
        entry.crc32c,
    )


def _check_place(variable: StoredVariable, file_size: int) -> None:
    """Raises ValueError where a data file does not hold a variable."""
    end = variable.offset + variable.size
    require(
        variable.offset >= 0 and end <= file_size,
        f"{os.path.basename(variable.path)} has {file_size} bytes and "
        f"{variable.name} is at bytes {variable.offset} to {end}; the file is "
        "truncated",
    )
