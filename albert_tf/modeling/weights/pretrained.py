"""A model's two files in a directory: config.json and model.safetensors.

transformers opens them as they are. What transformers saves is read here.
"""

import dataclasses
import math
import os
from collections.abc import Mapping

import keras

from albert_tf.config import ModelConfig, override, require
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.modeling.accounting import parameter_count
from albert_tf.modeling.weights import config_json, weights_file
from albert_tf.modeling.weights.config_json import ModelDescription
from albert_tf.modeling.weights.names import BLOCK, file_groups
from albert_tf.modeling.weights.stored_weights import (
    StoredWeights,
    needs_projection,
    stored_arrays,
)

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
# A file may lack weights, but not most of them.
_MAX_RATIO = 10


def describe(
    model: keras.Model, max_seq_length: int | None = None
) -> ModelDescription:
    """Returns the contents of a model's config.json.

    `max_seq_length` is that of training; by default what the model can read.
    """
    return ModelDescription(
        kind=type(model).__name__,
        config=model.config,
        max_seq_length=max_seq_length or model.config.max_position_embeddings,
        labels=model.labels,
        pooler=model.encoder.pooler is not None,
        head_options=model.head_options,
    )


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
    if needs_projection(description.config, stored):
        description = dataclasses.replace(
            description,
            config=override(
                description.config, {"always_project_embeddings": True}
            ),
        )
    return description, stored


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
    description: ModelDescription, stored: StoredWeights
) -> dict:
    """Returns the arguments of the model class beside the architecture."""
    pooler = description.pooler
    if pooler is None:
        # transformers leaves it out where its class does not read it.
        pooler = any(".pooler." in name for name in stored.shapes)
    return {
        "labels": description.labels,
        "pooler": pooler,
        "head_options": description.head_options,
    }


def write_model_files(
    directory: str,
    model: keras.Model,
    description: ModelDescription,
    *,
    special_ids: Mapping[str, int] = config_json.SPECIAL_IDS,
    own_settings: bool = True,
) -> None:
    """Writes both files, each under a temporary name first."""
    values = config_json.to_json(
        description,
        file_groups=file_groups(model.config),
        special_ids=special_ids,
        own_settings=own_settings,
    )
    path = os.path.join(directory, WEIGHTS_FILE)
    temporary = files.temporary_name(path)
    try:
        weights_file.write_weights(
            temporary, stored_arrays(model, "huggingface")
        )
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    write_json(os.path.join(directory, CONFIG_FILE), values)
