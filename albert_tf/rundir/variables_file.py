"""Checksummed safetensors files of variables.

The metadata hold a JSON object about the variables; the last entry is the
SHA-256 of every byte before it. Variables pass through memory one at a time.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import UserError, listed
from albert_tf.io import files
from albert_tf.io.safetensors_header import Tensor, make_header, read_header

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

        rows = [
            (name, _TYPES[v.dtype.name], v.shape.as_list(), _num_bytes(v))
            for name, v in variables.items()
        ]
        rows.append((_DIGEST, "U8", [_DIGEST_BYTES], _DIGEST_BYTES))
        write(make_header(rows, {_ABOUT: json.dumps(about)}))
        for variable in variables.values():
            values = np.ascontiguousarray(variable.numpy()).reshape(-1)
            write(values.view(np.uint8).data)
        file.write(digest.digest())


def read_about(path: str) -> dict[str, Any]:
    """Returns the `about` of a file, whose checksum is not verified.

    Raises Damaged when the header cannot be read.
    """
    return _read_header(path)[0]


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
        about, tensors = _read_header(path)
        _refuse_others(path, tensors, variables)
        for name, tensor in tensors.items():
            dtype = variables[name].dtype
            file.seek(tensor.offset)
            content = file.read(_num_bytes(variables[name]))
            values = np.frombuffer(content, dtype.as_numpy_dtype)
            variables[name].assign(values.reshape(tensor.shape))
    return about


def _num_bytes(variable: tf.Variable) -> int:
    return math.prod(variable.shape) * variable.dtype.size


def _read_header(path: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns `about` and the variables."""
    try:
        tensors, metadata = read_header(path, files.size(path))
        about = json.loads(metadata[_ABOUT])
        tensors.pop(_DIGEST)
    except (ValueError, KeyError):
        raise Damaged("its header cannot be read") from None
    return about, tensors


def _refuse_others(
    path: str,
    tensors: Mapping[str, Tensor],
    variables: Mapping[str, tf.Variable],
) -> None:
    needed = {
        name: f"{_TYPES[variable.dtype.name]} {variable.shape.as_list()}"
        for name, variable in variables.items()
    }
    faults = [f"{name} is missing" for name in needed if name not in tensors]
    for name, tensor in tensors.items():
        found = f"{tensor.dtype} {list(tensor.shape)}"
        if name not in needed:
            faults.append(f"{name} is not of this model")
        elif found != needed[name]:
            faults.append(f"{name} is {found} and not {needed[name]}")
    if faults:
        shown = listed(faults, 5, separator="; ", longest=None)
        raise UserError(
            f"{path} is a checkpoint of another model: "
            f"{shown}. Give the settings that it was "
            "made with, or another --run_dir."
        )
