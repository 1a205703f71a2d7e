"""tf.train.Example messages written in NumPy, whole columns at a time.

Main entry: `encode_examples`; `field` serves other messages. The bytes are
those of protobuf's deterministic serialisation, without protobuf: a builder
makes thousands a second in every process, none of which waits for TensorFlow.

The wire format (protobuf.dev/programming-guides/encoding): an unsigned
integer is a varint, 7 bits a byte, the lowest first, the high bit set on all
bytes but the last; a length-delimited field is a tag, its length as a varint,
and its bytes. The message (tensorflow/core/example/*.proto):

    Example    1: Features
    Features   1: map entries {1: name, 2: Feature}, sorted by name
    Feature    2: FloatList or 3: Int64List
    either     1: the values, packed: varints, or little-endian float32
"""

import functools
from collections.abc import Mapping

import numpy as np

# Flat values of all examples, and how many of them each example has.
Column = tuple[np.ndarray, np.ndarray]

_LENGTH_DELIMITED = 2
_FLOAT_LIST, _INT64_LIST = 2, 3
_INT64_MAX = 2**63 - 1
# Values turned into varints at a time: few enough for their work arrays to
# stay in the cache, and in memory that need not be asked for again.
_BLOCK = 2**14


def encode_examples(columns: Mapping[str, np.ndarray | Column]) -> list[bytes]:
    """Returns the serialised tf.train.Example of each example.

    `columns` holds by the feature's name an array `[batch, ...]`, or values
    and sizes. Floating-point values become a float_list, integers and bools
    an int64_list.

    Raises:
        ValueError: for a negative integer or one beyond int64, whose feature
            it names; for columns of unequal numbers of examples.
    """
    entries = []
    for name in sorted(columns, key=str.encode):
        column = columns[name]
        if isinstance(column, np.ndarray):
            sizes = np.full(len(column), column[:1].size)
            column = column.reshape(-1), sizes
        entries.append(_encode_feature(name, *column))
    return [
        field(1, b"".join(of_example))
        for of_example in zip(*entries, strict=True)
    ]


def _encode_feature(
    name: str, values: np.ndarray, sizes: np.ndarray
) -> list[bytes]:
    """Returns the map entry of a feature for each example."""
    ends = np.cumsum(sizes, dtype=np.int64)
    if values.dtype.kind == "f":
        kind, packed = _FLOAT_LIST, values.astype("<f4").tobytes()
        ends *= 4
    else:
        kind = _INT64_LIST
        packed, ends = _varints(name, values, ends)
    starts = np.concatenate([[0], ends])[:-1]
    heads = {
        size: _entry_head(name, kind, size)
        for size in np.unique(ends - starts).tolist()
    }
    return [
        heads[end - start] + packed[start:end]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _varints(
    name: str, values: np.ndarray, ends: np.ndarray
) -> tuple[bytes, np.ndarray]:
    """Returns `values` as varints, and `ends` counted in their bytes."""
    largest = int(values.max(initial=0))
    if largest > _INT64_MAX or values.min(initial=0) < 0:
        raise ValueError(f"{name!r} has a value outside of 0 to 2**63 - 1.")
    width = max(1, -(-largest.bit_length() // 7))
    if width == 1:
        return values.astype(np.uint8).tobytes(), ends
    parts, num_bytes = [], 0
    byte_ends = np.zeros_like(ends)
    for begin in range(0, len(values), _BLOCK):
        part, sizes = _varint_block(values[begin : begin + _BLOCK], width)
        first, last = np.searchsorted(
            ends, [begin, begin + len(sizes)], "right"
        )
        value_ends = np.cumsum(sizes, dtype=np.int32)
        byte_ends[first:last] = (
            num_bytes + value_ends[ends[first:last] - begin - 1]
        )
        num_bytes += len(part)
        parts.append(part)
    return b"".join(parts), byte_ends


def _varint_block(values: np.ndarray, width: int) -> tuple[bytes, np.ndarray]:
    """Returns `values` as varints of at most `width` bytes, and their sizes."""
    # Every value in `width` bytes, of which those in use are kept.
    table = np.empty((len(values), width), np.uint8)
    used = np.ones((len(values), width), bool)
    sizes = np.ones(len(values), np.uint8)
    rest: np.ndarray = values.astype(np.uint32 if width <= 4 else np.uint64)
    for index in range(width):
        table[:, index] = rest & 0x7F
        rest >>= 7
        if index + 1 < width:
            more = rest > 0
            table[:, index] |= more.view(np.uint8) << 7
            used[:, index + 1] = more
            sizes += more
    # compress is four times as fast as a mask as index.
    return table.reshape(-1).compress(used.reshape(-1)).tobytes(), sizes


@functools.lru_cache(maxsize=2**14)
def _entry_head(name: str, kind: int, num_bytes: int) -> bytes:
    """Returns a map entry up to its `num_bytes` of packed values."""
    # An empty list of values is left out, the list that holds it is not.
    values = _tag(1) + _varint(num_bytes) if num_bytes else b""
    in_list = len(values) + num_bytes
    head = _tag(kind) + _varint(in_list) + values
    in_feature = len(head) + num_bytes
    head = field(1, name.encode()) + _tag(2) + _varint(in_feature) + head
    return _tag(1) + _varint(len(head) + num_bytes) + head


def field(number: int, data: bytes) -> bytes:
    """Returns a length-delimited field of any message."""
    return _tag(number) + _varint(len(data)) + data


@functools.cache
def _tag(number: int) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED)


@functools.lru_cache(maxsize=2**14)
def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
