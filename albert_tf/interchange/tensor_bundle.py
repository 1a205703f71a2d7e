"""Reads TensorFlow's checkpoint files; needs no TensorFlow.

Main entries: `read_index` and `read_variable`. A checkpoint `PREFIX` is
`PREFIX.index`, a sorted table in the form of LevelDB that says of every
variable its type, shape and place, and `PREFIX.data-0000i-of-0000n`, the
values (tensorflow/core/util/tensor_bundle, tensorflow/core/lib/io/table).

TensorFlow trusts an index whose checksums are right: a negative size or an
unknown type ends the process, a huge shape is first allocated. Here
everything is held against the sizes of the files before it is believed.
"""

import dataclasses
import math
import os
import stat
import struct
from collections.abc import Iterator

import google_crc32c
import numpy as np

from albert_tf.config import UserError
from albert_tf.io import files

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER_BYTES = 48
# A model of a thousand blocks that share nothing, with the slots of its
# optimizer, stays below these.
_MOST_INDEX_BYTES = 1 << 24
_MOST_VARIABLES = 1 << 17
_MOST_NAME_BYTES = 512
_MOST_AXES = 32

# DataType -> its name, bytes a value (None: they vary).
_TYPES: dict[int, tuple[str, int | None]] = {
    1: ("float32", 4),
    2: ("float64", 8),
    3: ("int32", 4),
    4: ("uint8", 1),
    5: ("int16", 2),
    6: ("int8", 1),
    7: ("string", None),
    9: ("int64", 8),
    10: ("bool", 1),
    14: ("bfloat16", 2),
    19: ("float16", 2),
}
FLOAT_TYPES = ("float32", "float64", "float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class StoredVariable:
    """What an index says of a variable.

    Attributes:
        name: its name.
        dtype: the name of its type.
        shape: its shape.
        path: the data file.
        offset: where in that file its bytes begin.
        size: how many they are.
        checksum: their masked CRC32C.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: str
    offset: int
    size: int
    checksum: int


def read_index(prefix: str) -> dict[str, StoredVariable]:
    """Returns the variables of the checkpoint `prefix` by name.

    The values are not read, but they are there: the data files have the
    bytes that the index speaks of.

    Raises:
        UserError: when a file is missing or no such file, or the index is
            damaged or contradicts itself or the data files.
    """
    try:
        table = _table(_index_bytes(prefix + ".index"))
        num_shards = _num_shards(next(table, (b"", b"")))
        # Parts of a variable are stored under keys that begin with 0.
        entries = [(k, v) for k, v in table if not k.startswith(b"\0")]
        variables = [_variable(*e, prefix, num_shards) for e in entries]
        _check_data_files(variables)
    except ValueError as error:
        raise _unreadable(prefix, str(error)) from None
    return {variable.name: variable for variable in variables}


def read_variable(prefix: str, variable: StoredVariable) -> np.ndarray:
    """Returns the values of a variable as finite float32, float64 rounded.

    Raises:
        UserError: when they are of a type other than FLOAT_TYPES, damaged,
            or not finite; the line names checkpoint and variable.
    """
    if variable.dtype not in FLOAT_TYPES:
        raise UserError(
            f"{prefix}: {variable.name} holds {variable.dtype}; one of "
            f"{', '.join(FLOAT_TYPES)} is needed."
        )
    try:
        with files.open(variable.path) as file:
            file.seek(variable.offset)
            data = file.read(variable.size)
    except OSError as error:
        raise _unreadable(
            prefix, f"{variable.path}: {error.strerror}"
        ) from None
    if len(data) != variable.size or _checksum(data) != variable.checksum:
        raise _unreadable(
            prefix,
            f"the checksum of {variable.name} is wrong; "
            f"{variable.path} was damaged",
        )
    value = _float32(data, variable.dtype).reshape(variable.shape)
    if not np.isfinite(value).all():
        raise UserError(f"{prefix}: {variable.name} holds NaN or infinity.")
    return value


def _unreadable(prefix: str, reason: str) -> UserError:
    return UserError(
        f"{prefix} is not a readable TensorFlow checkpoint: {reason}."
    )


def _float32(data: bytes, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        # The upper half of a float32.
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    values = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))
    # What float32 cannot hold becomes infinite, and is then refused.
    with np.errstate(over="ignore"):
        return values.astype("<f4", copy=False)


def _checksum(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


def _regular_size(path: str) -> int:
    """Returns the size of a file; ValueError where it is none."""
    name = os.path.basename(path)
    try:
        if files.is_remote(path):
            return files.size(path)
        status = os.stat(path)
    except FileNotFoundError:
        raise ValueError(f"{name} is missing") from None
    except OSError as error:
        raise ValueError(f"{name}: {error.strerror}") from None
    # To open a pipe would wait for ever.
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{name} is not a file")
    return status.st_size


def _index_bytes(path: str) -> bytes:
    size = _regular_size(path)
    if size > _MOST_INDEX_BYTES:
        raise ValueError(
            f"its index has {size} bytes, the most allowed is "
            f"{_MOST_INDEX_BYTES}"
        )
    try:
        with files.open(path) as file:
            data = file.read(_MOST_INDEX_BYTES)
    except OSError as error:
        raise ValueError(
            f"{os.path.basename(path)}: {error.strerror}"
        ) from None
    if len(data) < _FOOTER_BYTES or not data.endswith(_MAGIC):
        raise ValueError("its index was cut or is another kind of file")
    return data


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys, ever greater, and values of a table."""
    footer = data[-_FOOTER_BYTES:]
    _, position = _handle(footer, 0)  # The block of statistics.
    (start, size), _ = _handle(footer, position)
    last, end, count = None, 0, 0
    for _, handle in _block(data, start, size):
        (start, size), _ = _handle(handle, 0)
        # Blocks that overlap would make a small file a long reading.
        if start < end:
            raise ValueError("its index has blocks that overlap")
        end = start + size
        for key, value in _block(data, start, size):
            count += 1
            if last is not None and key <= last:
                raise ValueError("its index is not in order")
            if count > _MOST_VARIABLES:
                raise ValueError(f"it has more than {_MOST_VARIABLES} entries")
            last = key
            yield key, value


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    start, position = _varint(data, position)
    size, position = _varint(data, position)
    return (start, size), position


def _block(data: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the entries of a block: a key is the end of the one before's."""
    end = start + size
    trailer = data[end : end + 5]
    if len(trailer) < 5 or _checksum(data[start : end + 1]) != int.from_bytes(
        trailer[1:], "little"
    ):
        raise ValueError("a checksum in its index is wrong; it was damaged")
    if trailer[0]:
        raise ValueError("its index is compressed, which cannot be read")
    block = data[start:end]
    num_restarts = int.from_bytes(block[-4:], "little")
    limit = len(block) - 4 - 4 * num_restarts
    if limit < 0:
        raise ValueError("a block of its index is malformed")
    position, key = 0, b""
    while position < limit:
        shared, position = _varint(block, position)
        unshared, position = _varint(block, position)
        length, position = _varint(block, position)
        middle = position + unshared
        if (
            shared > len(key)
            or middle + length > limit
            or shared + unshared > _MOST_NAME_BYTES
        ):
            raise ValueError("a block of its index is malformed")
        key = key[:shared] + block[position:middle]
        position = middle + length
        yield key, block[middle:position]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a number of 7 bits a byte, and where it ends."""
    value = 0
    for place, byte in enumerate(data[position : position + 10]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value & (1 << 64) - 1, position + place + 1
    raise ValueError("a number in its index has no end")


def _message(data: bytes) -> dict[int, list]:
    """Returns the fields of a protocol buffer by number."""
    fields: dict[int, list] = {}
    position = 0
    value: int | bytes
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, position = _varint(data, position)
        elif kind in (1, 2, 5):
            length = {1: 8, 5: 4}.get(kind)
            if length is None:
                length, position = _varint(data, position)
            value = data[position : position + length]
            position += length
        else:
            position = len(data) + 1
            break
        fields.setdefault(number, []).append(value)
    if position > len(data):
        raise ValueError("an entry of its index is malformed")
    return fields


def _number(fields: dict[int, list], number: int) -> int:
    """Returns the last integer of a field, 0 where it is absent."""
    value = fields.get(number, [0])[-1]
    if isinstance(value, bytes):
        raise ValueError("an entry of its index is malformed")
    return value


def _submessages(fields: dict[int, list], number: int) -> list[dict]:
    values = fields.get(number, [])
    if not all(isinstance(value, bytes) for value in values):
        raise ValueError("an entry of its index is malformed")
    return [_message(value) for value in values]


def _num_shards(entry: tuple[bytes, bytes]) -> int:
    """Returns how many data files there are; the first entry says it."""
    key, value = entry
    if key or not value:
        raise ValueError("its index has no header")
    header = _message(value)
    if _number(header, 2):
        raise ValueError("its numbers are big endian, which cannot be read")
    return _number(header, 1)


def _variable(
    key: bytes, value: bytes, prefix: str, num_shards: int
) -> StoredVariable:
    """Returns what an entry says; ValueError where it makes no sense."""
    name = key.decode("utf-8", "replace")
    if not name.isprintable() or "\N{REPLACEMENT CHARACTER}" in name:
        raise ValueError(f"{key!r} is no name of a variable")
    fields = _message(value)
    if fields.get(7):
        raise ValueError(
            f"{name} is stored in parts (a partitioned variable), which "
            "cannot be read; save it as one"
        )
    dtype, width = _TYPES.get(
        _number(fields, 1), (f"values of type {_number(fields, 1)}", None)
    )
    shapes = _submessages(fields, 2)
    axes = _submessages(shapes[-1], 2) if shapes else []
    shape = tuple(_number(axis, 1) for axis in axes)
    shard, offset, size = (_number(fields, number) for number in (3, 4, 5))
    shown = f"{name} has shape [{', '.join(map(str, shape[:8]))}]"
    if len(shape) > _MOST_AXES or not all(0 < n < 1 << 63 for n in shape):
        raise ValueError(f"{shown}, which no variable has")
    if width is not None and math.prod(shape) * width != size:
        raise ValueError(f"{shown} of {dtype} and is stored in {size} bytes")
    if shard >= num_shards:
        raise ValueError(f"{name} lies in data file {shard} of {num_shards}")
    checksums = fields.get(6, [b""])
    if not isinstance(checksums[-1], bytes):
        raise ValueError("an entry of its index is malformed")
    return StoredVariable(
        name,
        dtype,
        shape,
        f"{prefix}.data-{shard:05d}-of-{num_shards:05d}",
        offset,
        size,
        int.from_bytes(checksums[-1], "little"),
    )


def _check_data_files(variables: list[StoredVariable]) -> None:
    """Raises ValueError where a data file lacks bytes of a variable."""
    sizes: dict[str, int] = {}
    for variable in variables:
        path = variable.path
        if path not in sizes:
            sizes[path] = _regular_size(path)
        end = variable.offset + variable.size
        if end > sizes[path]:
            raise ValueError(
                f"{os.path.basename(path)} has {sizes[path]} bytes and "
                f"{variable.name} ends at byte {end}; the file was cut"
            )
