"""Checksummed safetensors files of variables.

The metadata hold a JSON object about the variables; the last entry is the
SHA-256 of every byte before it. Variables pass through memory one at a time.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import tensorflow as tf

from albert_tf.config import UserError
from albert_tf.io import files

# The names of dtypes in safetensors files.
_TYPES = {"bool": "BOOL", "bfloat16": "BF16"} | {
    f"{name}{bits}": f"{letter}{bits}"
    for name, letter in (("uint", "U"), ("int", "I"), ("float", "F"))
    for bits in (8, 16, 32, 64)
}
_DIGEST = "sha256"
_DIGEST_BYTES = 32
_ABOUT = "about"
_CHUNK_BYTES = 1 << 22


class Damaged(Exception):
    """A file was cut or changed since it was written."""


def write_variables(
    path: str, variables: Mapping[str, tf.Variable], about: dict[str, Any]
) -> None:
    """Writes variables and `about`, replacing the file when it is on disk."""
    digest = hashlib.sha256()
    with files.replacing(path) as file:

        def write(content: Any) -> None:
            file.write(content)
            digest.update(content)

        header = _header(variables, about)
        write(len(header).to_bytes(8, "little"))
        write(header)
        for variable in variables.values():
            values = np.ascontiguousarray(variable.numpy()).reshape(-1)
            write(values.view(np.uint8).data)
        file.write(digest.digest())


def read_about(path: str) -> dict[str, Any]:
    """Returns the `about` of a file, whose checksum is not verified.

    Raises Damaged when the header cannot be read.
    """
    with files.open(path) as file:
        return _read_header(file, files.size(path))[0]


def read_variables(
    path: str, variables: Mapping[str, tf.Variable]
) -> dict[str, Any]:
    """Assigns a file's values to the variables, and returns its `about`.

    Raises:
        Damaged: when a byte is missing or differs.
        UserError: when the file has other variables; none is assigned then.
    """
    num_bytes = files.size(path)
    digest = hashlib.sha256()
    left = num_bytes - _DIGEST_BYTES
    with files.open(path) as file:
        while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
            digest.update(chunk)
            left -= len(chunk)
        if file.read() != digest.digest():
            raise Damaged(
                f"of its {num_bytes} bytes some are missing or have changed "
                "since it was written"
            )
        file.seek(0)
        about, entries = _read_header(file, num_bytes)
        _refuse_others(path, entries, variables)
        for name, entry in entries.items():
            variable = variables[name]
            first, end = entry["data_offsets"]
            values = np.frombuffer(
                file.read(end - first), variable.dtype.as_numpy_dtype
            )
            variable.assign(values.reshape(entry["shape"]))
    return about


def _header(
    variables: Mapping[str, tf.Variable], about: dict[str, Any]
) -> bytes:
    header: dict[str, Any] = {"__metadata__": {_ABOUT: json.dumps(about)}}
    end = 0
    for name, variable in variables.items():
        begin, shape = end, variable.shape.as_list()
        end += math.prod(shape) * variable.dtype.size
        header[name] = {
            "dtype": _TYPES[variable.dtype.name],
            "shape": shape,
            "data_offsets": [begin, end],
        }
    header[_DIGEST] = {
        "dtype": "U8",
        "shape": [_DIGEST_BYTES],
        "data_offsets": [end, end + _DIGEST_BYTES],
    }
    text = json.dumps(header).encode()
    # Memory-mapping readers need the data at a multiple of 8.
    return text.ljust(-(-len(text) // 8) * 8)


def _read_header(file: IO, num_bytes: int) -> tuple[dict, dict[str, dict]]:
    """Returns `about` and the variables; the file position is at their data."""
    length = int.from_bytes(file.read(8), "little")
    if length > num_bytes:
        raise Damaged(f"its {num_bytes} bytes hold no header")
    try:
        header = json.loads(file.read(length))
        about = json.loads(header.pop("__metadata__")[_ABOUT])
        header.pop(_DIGEST)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged("its header cannot be read") from None
    return about, header


def _refuse_others(
    path: str,
    entries: Mapping[str, dict],
    variables: Mapping[str, tf.Variable],
) -> None:
    needed = {
        name: f"{_TYPES[variable.dtype.name]} {variable.shape.as_list()}"
        for name, variable in variables.items()
    }
    faults = [f"{name} is missing" for name in needed if name not in entries]
    for name, entry in entries.items():
        found = f"{entry['dtype']} {entry['shape']}"
        if name not in needed:
            faults.append(f"{name} is not of this model")
        elif found != needed[name]:
            faults.append(f"{name} is {found} and not {needed[name]}")
    if faults:
        more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise UserError(
            f"{path} is a checkpoint of another model: "
            f"{'; '.join(faults[:5])}{more}. Give the settings that it was "
            "made with, or another --run_dir."
        )
