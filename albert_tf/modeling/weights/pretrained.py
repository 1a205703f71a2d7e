"""A model's two files in a directory: config.json and model.safetensors.

transformers opens them as they are. What transformers saves is read here.
"""

import dataclasses
import math
import os
from typing import Any

import keras

from albert_tf.config import ModelConfig, require
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.modeling.accounting import parameter_count
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.weights import config_json, weights_file
from albert_tf.modeling.weights.config_json import ModelDescription
from albert_tf.modeling.weights.names import BLOCK, file_groups
from albert_tf.modeling.weights.stored_weights import (
    StoredWeights,
    copies_are_equal,
    has_pooler,
    heads_in,
    needs_projection,
    stored_arrays,
)

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
# A file may lack weights, but not most of them.
_MAX_RATIO = 10


def read_model_files(directory: str) -> tuple[ModelDescription, StoredWeights]:
    """Returns the description of a directory's model, and its weights."""
    path = os.path.join(directory, CONFIG_FILE)
    require(
        files.isfile(path),
        f"{directory} is not a model directory: it has no {CONFIG_FILE}. A run "
        "writes its model to RUN_DIR/model when it ends.",
    )
    description = config_json.from_json(read_json(path), path)
    weights_file.refuse_pickle(directory)
    stored = weights_file.open_weights(os.path.join(directory, WEIGHTS_FILE))
    check_size(description.config, stored, path)
    return _as_stored(description, stored), stored


def _as_stored(
    description: ModelDescription, stored: StoredWeights
) -> ModelDescription:
    """Returns the description, where the weights have it otherwise as they.

    transformers trains the copies of a shared weight apart, and drops heads
    that it does not have.
    """
    config = description.config
    if needs_projection(config, stored):
        config = dataclasses.replace(config, always_project_embeddings=True)
    if not copies_are_equal(config, stored):
        config = dataclasses.replace(
            config, sharing="all", num_hidden_groups=file_groups(config)
        )
    description = dataclasses.replace(description, config=config)
    dropped = [
        name
        for name, head in HEADS.items()
        if head.model_name == description.kind
        and head.transformers_model == "AlbertModel"
        and head.weight_names
        and name not in heads_in(stored)
    ]
    if not dropped:
        return description
    return dataclasses.replace(
        description, kind="AlbertModel", head_options={}, ours=False
    )


def check_size(config: ModelConfig, stored: StoredWeights, path: str) -> None:
    """Raises UserError where the model would be far larger than its file.

    A few bytes of configuration could otherwise fill the memory.
    """
    held = sum(math.prod(shape) for shape in stored.shapes.values())
    needed = parameter_count(config).encoder
    # Each part of a block, a dense layer or normalisation, has two arrays.
    blocks = file_groups(config, stored.form) * config.inner_group_num
    arrays = blocks * 2 * len(BLOCK)
    require(
        needed <= _MAX_RATIO * held
        and arrays <= _MAX_RATIO * len(stored.shapes),
        f"{path} describes an encoder of {needed:,} weights, with {arrays} "
        f"arrays in its blocks, and {stored.source} holds {held:,} in "
        f"{len(stored.shapes)} arrays; they do not belong together.",
    )


def constructor_arguments(
    kind: type[keras.Model],
    description: ModelDescription,
    stored: StoredWeights,
) -> dict:
    """Returns the arguments of a model class beside the architecture.

    Labels and options of heads are those of the file if it has that class.
    """
    is_same = kind.__name__ == description.kind
    return {
        "labels": description.labels if is_same else None,
        # Where the file lacks it, it is missing like any other weight.
        "pooler": has_pooler(stored) or kind.reads_pooled_output(),
        "head_options": description.head_options if is_same else {},
    }


def write_model_files(
    directory: str,
    model: keras.Model,
    max_seq_length: int,
    **options: Any,
) -> None:
    """Writes both files, each of which replaces one of its name at once.

    Other arguments as those of `config_json.to_json`.
    """
    values = config_json.to_json(model, max_seq_length, **options)
    weights_file.write_weights(
        os.path.join(directory, WEIGHTS_FILE),
        stored_arrays(model, "huggingface"),
    )
    write_json(os.path.join(directory, CONFIG_FILE), values)
