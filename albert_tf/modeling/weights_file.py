"""A model's `model.safetensors`, under Hugging Face's names."""

import json
import os

import numpy as np
import safetensors
import safetensors.numpy

from albert_tf.config import UserError

# Weights that Hugging Face ties to others and may or may not write.
_TIED = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}


def write_weights(path: str, values: dict[str, np.ndarray]) -> None:
    """Writes a safetensors file that every transformers release reads."""
    safetensors.numpy.save_file(
        {name: np.ascontiguousarray(v) for name, v in values.items()},
        path,
        metadata={"format": "pt"},
    )


def read_weights(path: str) -> dict[str, np.ndarray]:
    """Returns the arrays in a safetensors file under their full names.

    A bare encoder's names get the prefix `albert.`; tied weights must equal
    what they are tied to and are dropped, as are the position numbers that
    older releases wrote.

    Raises:
        UserError: when the file is missing, damaged, repeats a name, or
            holds tied weights that differ.
    """
    if not os.path.isfile(path):
        raise UserError(f"{path} is missing.")
    try:
        _check_names(path)
        values = safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, ValueError, TypeError) as error:
        raise UserError(
            f"{path} is not a readable safetensors file: {error}."
        ) from None
    if not any(name.startswith("albert.") for name in values):
        values = {f"albert.{name}": value for name, value in values.items()}
    values.pop("albert.embeddings.position_ids", None)
    for tied, source in _TIED.items():
        copy = values.pop(tied, None)
        if (
            copy is not None
            and source in values
            and not np.array_equal(copy, values[source])
        ):
            raise UserError(f"{path}: {tied} differs from {source}.")
    return values


def _check_names(path: str) -> None:
    """Raises ValueError for a name that appears twice in the header."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > os.path.getsize(path):
            raise ValueError("the header is longer than the file")
        header = file.read(length)

    def unique(pairs: list) -> dict:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise ValueError("a name appears twice in the header")
        return dict(pairs)

    try:
        json.loads(header, object_pairs_hook=unique)
    except RecursionError:
        raise ValueError("the header is nested too deeply") from None
