"""Presets of KerasHub: AlbertBackbone, AlbertTextClassifier, AlbertMaskedLM.

Of a directory its JSON and the arrays in its HDF5 files are read; nothing of
Keras or KerasHub, whose files can name code, is loaded.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import h5py
import numpy as np

from albert_tf.config import (
    ModelConfig,
    UserError,
    from_dict,
    lookup,
    require,
    shown,
)
from albert_tf.io import files
from albert_tf.io.encoding import refuse_pointer_at
from albert_tf.io.json_files import read_json
from albert_tf.modeling.weights.config_json import ModelDescription
from albert_tf.modeling.weights.stored_weights import StoredWeights, to_float32

_TASK_FILE = "task.json"
WEIGHTS_FILE = "model.weights.h5"
_TASK_WEIGHTS_FILE = "task.weights.h5"

# Files that are downloaded of one on the hub.
HUB_FILES = (WEIGHTS_FILE, _TASK_WEIGHTS_FILE, "preprocessor.json")

# Settings by KerasHub's names of them.
_SETTINGS = {
    "vocabulary_size": ("vocab_size",),
    "num_layers": ("num_hidden_layers",),
    "num_heads": ("num_attention_heads",),
    "num_groups": ("num_hidden_groups",),
    "num_inner_repetitions": ("inner_group_num",),
    "embedding_dim": ("embedding_size",),
    "hidden_dim": ("hidden_size",),
    "intermediate_dim": ("intermediate_size",),
    "dropout": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "max_sequence_length": ("max_position_embeddings",),
    "num_segments": ("type_vocab_size",),
}
# Names of Hugging Face's by those of the groups `layers/...` of the files.
_ENCODER = {
    "reversible_embedding": "albert.embeddings.word_embeddings",
    "position_embedding": "albert.embeddings.position_embeddings",
    "embedding": "albert.embeddings.token_type_embeddings",
    "layer_normalization": "albert.embeddings.LayerNorm",
    "dense": "albert.encoder.embedding_hidden_mapping_in",
    "dense_1": "albert.pooler",
}
_BLOCK = {
    "_self_attention_layer/query_dense": "attention.query",
    "_self_attention_layer/key_dense": "attention.key",
    "_self_attention_layer/value_dense": "attention.value",
    "_self_attention_layer/output_dense": "attention.dense",
    "_self_attention_layer_norm": "attention.LayerNorm",
    "_feedforward_intermediate_dense": "ffn",
    "_feedforward_output_dense": "ffn_output",
    "_feedforward_layer_norm": "full_layer_layer_norm",
}
_HEADS = {
    "AlbertTextClassifier": {"dense": "classifier"},
    "AlbertMaskedLM": {
        "masked_lm_head/_intermediate_dense": "predictions.dense",
        "masked_lm_head/_intermediate_layer_norm": "predictions.LayerNorm",
    },
}
_TASKS = tuple(_HEADS)
# Models of several classes by the activation of a classifier's outputs. The
# labels of "sigmoid" are independent of each other.
_ACTIVATIONS = {
    **dict.fromkeys(("linear", "softmax"), "AlbertForClassification"),
    "sigmoid": "AlbertForMultiLabelClassification",
}


class _Place(NamedTuple):
    """Where an array is, and the shape that it has in Hugging Face's files."""

    path: str
    name: str
    shape: tuple[int, ...]
    is_transposed: bool


def read_preset(
    values: Mapping[str, Any], directory: str
) -> tuple[ModelDescription, StoredWeights] | None:
    """Returns the model of a preset; None for another directory.

    `values` are those of its config.json.

    Raises:
        UserError: for presets of other models, and files that do not fit.
    """
    if "class_name" not in values:
        return None
    path = os.path.join(directory, "config.json")
    settings: Any = values.get("config")
    require(
        values["class_name"] == "AlbertBackbone" and isinstance(settings, dict),
        f"{path}: class_name is {shown(values['class_name'])}; of KerasHub's "
        "models only AlbertBackbone can be read.",
    )
    missing = [name for name in _SETTINGS if name not in settings]
    require(not missing, f"{path} lacks {', '.join(missing)}.")
    config = from_dict(
        ModelConfig,
        {
            ours: settings[theirs]
            for theirs, names in _SETTINGS.items()
            for ours in names
        },
        path,
    )
    task, kind = _task_of(directory)
    places = dict(_places(directory, config, task))
    labels = None
    if task == "AlbertTextClassifier":
        rows = places["classifier.weight"].shape[0]
        if rows == 1 and kind == "AlbertForClassification":
            kind = "AlbertForRegression"
        else:
            labels = [f"LABEL_{n}" for n in range(rows)]
    return (
        ModelDescription(
            kinds=(kind,),
            config=config,
            max_seq_length=_length(directory, config),
            labels=labels,
            ours=False,
        ),
        StoredWeights(
            source=os.path.join(directory, WEIGHTS_FILE),
            form="huggingface",
            shapes={name: place.shape for name, place in places.items()},
            read=lambda name: _read(places[name]),
        ),
    )


def _task_of(directory: str) -> tuple[str, str]:
    """Returns a preset's task, empty for a backbone alone, and model class."""
    path = os.path.join(directory, _TASK_FILE)
    if not files.isfile(path):
        return "", "AlbertModel"
    values = read_json(path)
    task = str(values.get("class_name"))
    require(
        task in _TASKS,
        f"{path}: class_name is {shown(task)}; only {' and '.join(_TASKS)} can "
        "be read.",
    )
    if task == "AlbertMaskedLM":
        return task, "AlbertForMaskedLM"
    settings: Any = values.get("config")
    name = "linear"
    if isinstance(settings, dict):
        name = settings.get("activation") or name
    return task, lookup(_ACTIVATIONS, str(name), f"{path}: activation")


def _length(directory: str, config: ModelConfig) -> int:
    """Returns the sequence length to which the preset truncates texts."""
    path = os.path.join(directory, "preprocessor.json")
    limit = config.max_position_embeddings
    settings = read_json(path).get("config") if files.isfile(path) else None
    length = (settings or {}).get("sequence_length")
    return min(length, limit) if type(length) is int and length > 2 else limit


def _places(
    directory: str, config: ModelConfig, task: str
) -> Iterator[tuple[str, _Place]]:
    """Yields the name of each array in Hugging Face's files, and its place."""
    parts = dict(_ENCODER)
    for number in range(config.num_hidden_groups * config.inner_group_num):
        group, inner = divmod(number, config.inner_group_num)
        name = f"transformer_encoder_{number}".removesuffix("_0")
        prefix = f"albert.encoder.albert_layer_groups.{group}.albert_layers."
        parts |= {
            f"{name}/{theirs}": f"{prefix}{inner}.{ours}"
            for theirs, ours in _BLOCK.items()
        }
    yield from _of_file(os.path.join(directory, WEIGHTS_FILE), parts)
    if task:
        path = os.path.join(directory, _TASK_WEIGHTS_FILE)
        yield from _of_file(path, _HEADS[task])
        if task == "AlbertMaskedLM":
            bias = "layers/masked_lm_head/vars/0"
            with _opened(path) as file:
                shape = _array(file, bias, path).shape
            yield "predictions.bias", _Place(path, bias, shape, False)


def _of_file(
    path: str, parts: Mapping[str, str]
) -> Iterator[tuple[str, _Place]]:
    """Yields the arrays of layers in a file."""
    with _opened(path) as file:
        for theirs, ours in parts.items():
            names = [f"layers/{theirs}/vars/{n}" for n in range(2)]
            first = _array(file, names[0], path)
            if names[1] not in file:
                # A table.
                yield (
                    f"{ours}.weight",
                    _Place(path, names[0], first.shape, False),
                )
                continue
            bias = _array(file, names[1], path).size
            is_kernel = first.ndim > 1
            # Theirs have an axis for the attention heads.
            shape = (bias, first.size // bias) if is_kernel else (bias,)
            yield (
                f"{ours}.weight",
                _Place(path, names[0], shape, is_kernel),
            )
            yield f"{ours}.bias", _Place(path, names[1], (bias,), False)


def _opened(path: str) -> h5py.File:
    require(files.isfile(path), f"{path} is missing.")
    try:
        return h5py.File(files.open(path), "r")
    except OSError as error:
        refuse_pointer_at(path)
        raise UserError(f"{path} is no readable HDF5 file: {error}.") from None


def _array(file: h5py.File, name: str, path: str) -> h5py.Dataset:
    """Returns an array that lies in this file, as it is."""
    link = file.get(name, getlink=True) if name in file else None
    found = file[name] if isinstance(link, h5py.HardLink) else None
    is_plain = (
        isinstance(found, h5py.Dataset)
        and found.file == file
        and found.external is None
        and not found.is_virtual
        and (found.dtype.kind == "f" or _is_bfloat16(found))
        and found.size > 0
        and found.id.get_storage_size() == found.nbytes
    )
    require(
        is_plain,
        f"{path} has no array of floating-point numbers {name}, as KerasHub "
        "0.32 saves it of a model that is not quantized.",
    )
    return found


def _is_bfloat16(array: h5py.Dataset) -> bool:
    """Returns whether an array holds the bits of a type that HDF5 lacks."""
    return array.dtype == "V2" and array.attrs.get("dtype") == "bfloat16"


def _read(place: _Place) -> np.ndarray:
    with _opened(place.path) as file:
        array = _array(file, place.name, place.path)
        stored = array[()]
        if _is_bfloat16(array):
            stored = stored.view("<u2")
        value = to_float32(stored)
    if place.is_transposed:
        return value.reshape(place.shape[::-1]).T
    return value.reshape(place.shape)
