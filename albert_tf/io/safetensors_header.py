"""The header of safetensors files: `read_header`, `make_header`."""

import contextlib
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import safetensors

from albert_tf.config import require
from albert_tf.io import files
from albert_tf.io.json_files import object_of_unique_keys


class Tensor(NamedTuple):
    """Type, shape and first byte of an array in a file.

    `is_transposed`: whether its transposed array is what lies there.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int
    is_transposed: bool = False


def make_header(
    tensors: Iterable[tuple[str, str, Sequence[int], int]],
    metadata: Mapping[str, str],
) -> bytes:
    """Returns the header of arrays: names, types, shapes, numbers of bytes.

    Their bytes follow it in this order.
    """
    entries: dict[str, object] = {"__metadata__": metadata}
    end = 0
    for name, dtype, shape, num_bytes in tensors:
        begin, end = end, end + num_bytes
        entries[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    content = text.encode()
    # Memory-mapping readers need the data at a multiple of 8.
    content = content.ljust(-(-len(content) // 8) * 8)
    return len(content).to_bytes(8, "little") + content


def read_header(
    path: str, max_bytes: int
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Returns the arrays in a file by name, and its metadata.

    Raises:
        ValueError: for a header of more than `max_bytes`, a name that is there
            twice, and types, shapes and offsets that do not agree with one
            another or with the size of the file.
        OSError: when the file cannot be read.
    """
    size = files.size(path)
    with files.open(path) as file:
        length = int.from_bytes(file.read(8), "little")
        require(
            length <= size - 8,
            f"a header of {length} bytes is longer than the file, which has "
            f"{size}",
        )
        require(
            length <= max_bytes,
            f"its header of {length} bytes is above the maximum, {max_bytes}",
        )
        header = file.read(length)
    _check(path, size, header)
    entries = json.loads(header, object_pairs_hook=object_of_unique_keys)
    metadata = entries.pop("__metadata__", {})
    tensors = {
        name: Tensor(
            entry["dtype"],
            tuple(entry["shape"]),
            8 + length + entry["data_offsets"][0],
        )
        for name, entry in entries.items()
    }
    return tensors, metadata


def _check(path: str, size: int, header: bytes) -> None:
    """Raises ValueError for deep nesting and what does not agree.

    The library does not see names that are there twice.
    """
    with contextlib.ExitStack() as stack:
        if files.is_remote(path):
            # The library reads a file on disk, with no data in it.
            file = stack.enter_context(tempfile.NamedTemporaryFile())
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(size)
            file.flush()
            path = file.name
        try:
            stack.enter_context(safetensors.safe_open(path, framework="np"))
        except safetensors.SafetensorError as error:
            raise ValueError(str(error)) from None
