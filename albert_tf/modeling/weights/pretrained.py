"""A model's two files in a directory: config.json and model.safetensors.

transformers opens them as they are. What transformers saves is read here.
`restore_model` makes a model of any stored one, `initialize` loads what another
model can start from.
"""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import keras
import numpy as np

from albert_tf.config import (
    TASK_SETTINGS,
    ModelConfig,
    UserError,
    override,
    require,
)
from albert_tf.io import files, hub
from albert_tf.io.json_files import read_json, write_json
from albert_tf.modeling.accounting import parameter_count
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.weights import (
    config_json,
    keras_hub_preset,
    weights_file,
)
from albert_tf.modeling.weights.config_json import ModelDescription
from albert_tf.modeling.weights.names import BLOCK, POOLER, file_groups
from albert_tf.modeling.weights.sentence_modules import (
    read_length,
    read_modules,
    write_modules,
)
from albert_tf.modeling.weights.stored_weights import (
    StoredWeights,
    copies_are_equal,
    has_pooler,
    heads_in,
    load_stored_weights,
    needs_projection,
    stored_arrays,
)

Model = TypeVar("Model", bound=keras.Model)

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
# The best model of a pretraining run, whose model is that of its end.
_BEST_MODEL = "best_model"
_TOKENIZER_FILE = "tokenizer_config.json"
# The input of transformers, and the weight that it selects from.
_SEGMENT_IDS = "token_type_ids"
_SEGMENTS = "albert.embeddings.token_type_embeddings.weight"
_EMBEDDING = HEADS["sentence_embedding"]
# A file may lack weights, but not most of them.
_MAX_RATIO = 10


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """A model in files, of which the weights are not read yet.

    Attributes:
        origin: the kind of its place, for messages.
        description: from its config.json, or derived from a checkpoint.
        weights: the arrays, by name.
        directory: that of its tokenizer, if it has one.
        hub_name: `owner/name@commit`, if it is from the hub.
    """

    origin: str
    description: ModelDescription
    weights: StoredWeights
    directory: str | None = None
    hub_name: str = ""

    @property
    def config(self) -> ModelConfig:
        """The architecture."""
        return self.description.config

    @property
    def source(self) -> str:
        """The file of the weights."""
        return self.weights.source

    @property
    def tokenizer_path(self) -> str:
        """The directory to look for the tokenizer in."""
        return self.directory or os.path.dirname(self.source) or "."

    @property
    def fingerprint(self) -> str:
        """A digest of the weights, whatever their path."""
        return self.weights.fingerprint

    def with_tokenizer(self, directory: str | None) -> "StoredModel":
        """Returns the model with the tokenizer of a directory, if given."""
        return dataclasses.replace(self, directory=directory or self.directory)

    def for_task(self, changes: Mapping[str, Any]) -> "StoredModel":
        """Returns the model with other settings among TASK_SETTINGS."""
        for name in changes:
            require(
                name in TASK_SETTINGS,
                f"{name} is not among the settings that a task may change: "
                f"{', '.join(TASK_SETTINGS)}.",
            )
        description = dataclasses.replace(
            self.description, config=override(self.config, changes)
        )
        return dataclasses.replace(self, description=description)

    def missing_heads(self, kind: type[keras.Model]) -> tuple[str, ...]:
        """Returns the heads of a model class whose weights are not stored."""
        held = heads_in(self.weights, self.config, self.description.heads)
        return tuple(
            name
            for name, head in kind.head_classes().items()
            if head.weight_names and name not in held
        )


def read_model_files(directory: str) -> StoredModel:
    """Returns the model in a directory, ours or of transformers or KerasHub."""
    path = os.path.join(directory, CONFIG_FILE)
    require_existing(directory)
    require(
        files.isfile(path),
        f"{directory} is neither a model directory nor a run directory with a "
        f"model: it has no {CONFIG_FILE}.",
    )
    values = read_json(path)
    _refuse_run_without_model(values, directory)
    preset = keras_hub_preset.read_preset(values, directory)
    if preset:
        description, stored = preset
        check_size(description.config, stored, path)
        description = _as_stored(description, stored)
        return StoredModel("KerasHub preset", description, stored, directory)
    description = config_json.from_json(values, path)
    weights_file.refuse_pickle(directory)
    stored = weights_file.open_weights(os.path.join(directory, WEIGHTS_FILE))
    check_size(description.config, stored, path)
    stored = _with_segments_of_tokenizer(stored, description, directory)
    description = _as_used_there(_as_stored(description, stored), directory)
    origin = "model" if description.ours else "Hugging Face"
    return StoredModel(f"{origin} directory", description, stored, directory)


def require_existing(path: str) -> None:
    """Raises UserError for the path of a model that does not exist."""
    parts = os.fspath(path).split(",")
    several = len(parts) > 1 and all(map(files.exists, parts))
    hint = " One model is read; bin.evaluate scores several as an ensemble."
    require(
        files.exists(path),
        f"{path} does not exist.{hint if several else hub.hint(path)}",
    )


def _refuse_run_without_model(
    values: Mapping[str, Any], directory: str
) -> None:
    """Raises UserError where a config.json is that of a run, not a model."""
    if "job" not in values or "model_type" in values:
        return
    best = os.path.join(directory, _BEST_MODEL)
    if files.isfile(os.path.join(best, CONFIG_FILE)):
        hint = f"its best model so far is {best}."
    elif values["job"] == "pretrain":
        hint = "pretraining writes one when it ends."
    else:
        hint = "it writes one at its first evaluation."
    raise UserError(f"{directory} is a run without a model yet; {hint}")


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
        if (head.model_name,) == description.kinds
        and head.class_in_transformers(config) == "AlbertModel"
        and head.weight_names
        and name not in heads_in(stored, config)
    ]
    if not dropped:
        return description
    return dataclasses.replace(
        description, kinds=("AlbertModel",), head_options={}, ours=False
    )


def _with_segments_of_tokenizer(
    stored: StoredWeights, description: ModelDescription, directory: str
) -> StoredWeights:
    """Returns the weights, without segments where the model had none.

    By default the tokenizer of ALBERT in transformers 5 gives the second text
    of a pair the segment of the first. There a head has read pairs so; here
    it does so where all segments have the embedding of the first.
    """
    path = os.path.join(directory, _TOKENIZER_FILE)
    heads = [HEADS[name] for name in description.heads]
    if not files.isfile(path) or all(head.is_pretrained for head in heads):
        return stored
    settings = read_json(path)
    names = settings.get("model_input_names")
    if names is None:
        # Version 5 writes the backend, and none of its classes' defaults.
        has_segments = (
            "backend" not in settings
            or settings.get("tokenizer_class") == "BertTokenizer"
        )
    else:
        has_segments = isinstance(names, list) and _SEGMENT_IDS in names
    if has_segments:
        return stored

    def read(name: str) -> np.ndarray:
        value = stored.read(name)
        if name == _SEGMENTS:
            value = np.repeat(value[:1], len(value), axis=0)
        return value

    return dataclasses.replace(stored, read=read)


def _as_used_there(
    description: ModelDescription, directory: str
) -> ModelDescription:
    """Returns the description with what other files than the two say.

    The length of a section of ours is that of another job where the model has
    another head by now, or other files of sentence-transformers.
    """
    options = {}
    if set(description.kinds) & {"AlbertModel", _EMBEDDING.model_name}:
        options = read_modules(directory)
    path = os.path.join(directory, _TOKENIZER_FILE)
    lengths = [read_length(directory)]
    if files.isfile(path) and (options or not description.ours):
        lengths.append(read_json(path).get("model_max_length"))
    numbers = [n for n in lengths if isinstance(n, int) and n >= 3]
    if numbers:
        # The tokenizer's counts there only without one of the library's.
        limit = description.config.max_position_embeddings
        description = dataclasses.replace(
            description, max_seq_length=min(numbers[0], limit)
        )
    if not options:
        return description
    return dataclasses.replace(
        description, kinds=(_EMBEDDING.model_name,), head_options=options
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


def restore_model(
    kind: type[Model],
    stored: StoredModel,
    *,
    num_labels: int | None = None,
    labels: Sequence[str] | None = None,
    allow_missing: bool = False,
    drop_other_heads: bool = False,
    **arguments: Any,
) -> tuple[Model, list[str]]:
    """Returns a model of a class with the stored weights, and lines for a log.

    Arguments and errors are those of `AlbertModel.from_pretrained`. With
    `drop_other_heads` weights of other heads may be stored beside those of the
    class itself.
    """
    description = stored.description
    if kind.head_names and not allow_missing:
        description.require_kind()
    is_same = any(c.__name__ in description.kinds for c in kind.__mro__)
    own = description.labels if is_same and kind.takes_labels() else None
    if labels is None and num_labels in (None, len(own or ())):
        num_labels, labels = None, own
    defaults = {
        # Where the file lacks it, it is missing like any other weight.
        "pooler": has_pooler(stored.weights)
        or kind.reads_pooled_output(stored.config),
        "head_options": description.head_options if is_same else {},
    }
    model = kind(
        stored.config, num_labels, labels=labels, **{**defaults, **arguments}
    )
    new_heads = stored.missing_heads(kind)
    if model.labels not in (None, description.labels):
        new_heads = kind.head_names
    with_labels, with_new = (
        f" with the labels {of_model}" if of_model else ""
        for of_model in (description.labels, model.labels)
    )
    require(
        allow_missing or not new_heads,
        f"{stored.source} holds an {' or '.join(description.kinds)}"
        f"{with_labels}; the {kind.__name__}{with_new} needs a new head "
        f"{' and '.join(new_heads)}, which allow_missing=True initialises.",
    )
    lines = load_stored_weights(
        model,
        stored.weights,
        new_heads=new_heads,
        drop_other_heads=drop_other_heads
        or bool(new_heads)
        or not is_same
        # Released files have more heads than their configuration names.
        or (bool(kind.head_names) and not description.ours),
        allow_missing=allow_missing,
    )
    return model, lines


def initialize(model: keras.Model, stored: StoredModel) -> str:
    """Loads stored weights into a new model; returns a line for the log.

    The encoder must fit in full, or it is a UserError, but for a pooler that
    is not stored: that is new, and so is always the head of a task. A
    pretraining head that both sides have is loaded.
    """
    held = heads_in(stored.weights, stored.config)
    new_heads = [
        name
        for name, head in model.heads.items()
        if not head.is_pretrained or name not in held
    ]
    if not has_pooler(stored.weights):
        new_heads.append(POOLER)
    lines = load_stored_weights(
        model,
        stored.weights,
        new_heads=tuple(new_heads),
        drop_other_heads=True,
    )
    read = f"Read weights from the {stored.origin} {stored.source}."
    return " ".join([read, *lines])


def write_model_files(
    directory: str,
    model: keras.Model,
    max_seq_length: int,
    **options: Any,
) -> None:
    """Writes the files, each of which replaces one of its name at once.

    Other arguments as those of `config_json.to_json`.
    """
    values = config_json.to_json(model, max_seq_length, **options)
    if type(model).__name__ == _EMBEDDING.model_name:
        write_modules(
            directory,
            model.head_options,
            model.config.hidden_size,
            max_seq_length,
        )
    weights_file.write_weights(
        os.path.join(directory, WEIGHTS_FILE),
        stored_arrays(model, "huggingface"),
    )
    write_json(os.path.join(directory, CONFIG_FILE), values)
