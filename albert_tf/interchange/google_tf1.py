"""Models of google-research/albert (TensorFlow 1), both ways.

A checkpoint, and the `albert_config.json` beside it. Main entries:
`find_checkpoint`, `read_model`, and `write_folder`, which writes both as the
released archives have them.
"""

import os
import re
from collections.abc import Iterator, Mapping

import numpy as np

from albert_tf.config import ModelConfig, UserError, from_dict, require, shown
from albert_tf.interchange import tensor_bundle
from albert_tf.interchange.model_files import TOKENIZER_FILES
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.io.tensorflow_messages import reason_of
from albert_tf.modeling.heads import Head
from albert_tf.modeling.models import AlbertModel, models
from albert_tf.modeling.weights import pretrained
from albert_tf.modeling.weights.config_json import (
    ModelDescription,
    require_architecture,
)
from albert_tf.modeling.weights.names import check_groups, file_groups
from albert_tf.modeling.weights.pretrained import StoredModel
from albert_tf.modeling.weights.stored_weights import (
    StoredWeights,
    heads_in,
    stored_arrays,
)
from albert_tf.text.tokenizer_base import Tokenizer

CONFIG_FILE = "albert_config.json"

# Keys of released configuration files that nothing reads.
_IGNORED_KEYS = frozenset(
    (
        "net_structure_type",
        "layers_to_keep",
        "gap_size",
        "num_memory_blocks",
        "down_scale_factor",
    )
)
# The arguments of the original's AlbertConfig.
_THEIR_KEYS = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_hidden_groups",
    "num_attention_heads",
    "intermediate_size",
    "inner_group_num",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
)
# The original's activations that are ours under the same name (its "gelu" is
# the tanh form), and its only epsilon.
_THEIR_VALUES = {"hidden_act": ("gelu", "relu"), "layer_norm_eps": (1e-12,)}
# Settings that it lacks are within this key, and nowhere else. It ignores keys
# that it does not know.
_OWN_KEY = "albert_tf"
_OWN_SETTINGS = ("sharing", "num_hidden_groups", "classifier_dropout_prob")

# The name of the released checkpoints, which the original predicts from.
_CHECKPOINT = "model.ckpt-best"
INDEX_FILE = f"{_CHECKPOINT}.index"
# The files that `write_folder` writes.
FILES = frozenset(
    (
        *TOKENIZER_FILES,
        CONFIG_FILE,
        "checkpoint",
        INDEX_FILE,
        f"{_CHECKPOINT}.data-00000-of-00001",
    )
)

# Suffix of names in checkpoints of tf.train.Checkpoint.
_OBJECT_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"

# The variable that every model has, after the scope that it was built in.
_WORDS = "bert/embeddings/word_embeddings"
_KERAS_LAYER_NORM = re.compile(r"(?<![^/])layer_normalization(_1)?(?![^/])")
_FILE_SUFFIX = re.compile(r"\.(index|meta|data-\d{5,}-of-\d{5,})$")


def find_checkpoint(path: str) -> str | None:
    """Returns the prefix of the checkpoint at `path`, None if there is none.

    `path` is a prefix, one of a checkpoint's files, or a directory with one
    checkpoint. `open_weights` checks that it is complete.

    Raises:
        UserError: for a directory with several.
    """
    if not files.isdir(path):
        prefix = _FILE_SUFFIX.sub("", path)
        directory, base = os.path.split(prefix)
        return prefix if base in _checkpoints(directory or ".") else None
    names = sorted(n for n in _checkpoints(path) if not n.startswith("."))
    require(
        len(names) <= 1,
        f"{path} holds {len(names)} checkpoints, {', '.join(names)}; name one "
        f"of them, such as {os.path.join(path, *names[-1:])}.",
    )
    return os.path.join(path, names[0]) if names else None


def _checkpoints(directory: str) -> set[str]:
    if not files.isdir(directory):
        return set()
    return {
        _FILE_SUFFIX.sub("", name)
        for name in files.listdir(directory)
        if _FILE_SUFFIX.search(name) and not name.endswith(".meta")
    }


def read_model(path: str) -> StoredModel:
    """Returns the model of the checkpoint `path`, a prefix."""
    config = config_beside(path)
    weights = open_weights(path)
    pretrained.check_size(config, weights, path)
    count = weights.shapes.get("output_weights", (2,))[0]
    description = ModelDescription(
        kinds=_kinds(weights, config),
        config=config,
        max_seq_length=config.max_position_embeddings,
        labels=[f"LABEL_{n}" for n in range(count)],
        ours=False,
    )
    return StoredModel("Google TF1 checkpoint", description, weights)


def _kinds(weights: StoredWeights, config: ModelConfig) -> tuple[str, ...]:
    """Returns the names of the model classes that have these weights."""
    held = heads_in(weights, config)
    # The original gives heads of one output the variables of a classifier.
    if weights.shapes.get("output_weights", ())[:1] != (1,):
        held -= {"regression", "multiple_choice"}
    if "sentence_order" in held:
        # It is trained beside the masked LM.
        held.discard("masked_lm")
    found = (
        name
        for name, kind in models().items()
        if held.issuperset(kind.head_names[-1:]) and kind.head_names
    )
    return tuple(found) or ("AlbertModel",)


def open_weights(path: str) -> StoredWeights:
    """Returns the weights of the checkpoint `path`, a prefix.

    Training state is ignored: slots, which optimizers and averages name after
    their variable (`X/adam_m`), and scalars, which are counters
    (`global_step`). Names are the original's: `layer_normalization`, of forks
    with Keras' LayerNormalization, becomes `LayerNorm`, and the scope in which
    the model was built, such as the `module/` of TF-Hub exports, is removed.

    Raises:
        UserError: when the checkpoint is damaged or none of the original's, or
            two of its variables get the same name.
    """
    stored: dict[str, tensor_bundle.StoredVariable] = {}
    variables = tensor_bundle.read_index(path)
    scopes = [n.removesuffix(_WORDS) for n in variables if n.endswith(_WORDS)]
    scope = scopes[0] if len(scopes) == 1 else "module/"
    for name, variable in sorted(variables.items()):
        require(
            not name.endswith(_OBJECT_SUFFIX),
            f"{path} was written by tf.train.Checkpoint ({name}); expected a "
            "checkpoint of google-research/albert.",
        )
        if name.rpartition("/")[0] in variables or variable.shape == ():
            continue
        known = _KERAS_LAYER_NORM.sub(r"LayerNorm\1", name.removeprefix(scope))
        first = stored.setdefault(known, variable)
        require(
            first is variable,
            f"{path} holds both {first.name} and {name}, which are two names "
            f"of {known}; remove one.",
        )
    return StoredWeights(
        source=path,
        form="google",
        shapes={name: stored[name].shape for name in sorted(stored)},
        read=lambda name: tensor_bundle.read_variable(path, stored[name]),
    )


def write_checkpoint(prefix: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes weights, by the original's names, that it restores by name.

    A `global_step` of 0 is added: to evaluate and to predict, the original's
    Estimator restores every variable of its graph, and that is one of them.
    The file `checkpoint` in the same directory names it as the latest.

    Raises:
        UserError: when it cannot be written.
    """
    import tensorflow as tf

    directory, base = os.path.split(prefix)
    values = {name: np.asarray(a, np.float32) for name, a in arrays.items()}
    tensors = {**values, "global_step": np.int64(0)}
    state = tf.compat.v1.train.generate_checkpoint_state_proto(
        directory, base, all_model_checkpoint_paths=[base]
    )
    try:
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=[tf.constant(value) for value in tensors.values()],
        )
        files.write(os.path.join(directory, "checkpoint"), str(state).encode())
    except (OSError, tf.errors.OpError) as error:
        if files.is_disk_full(error):
            raise
        reason = reason_of(str(error)) or type(error).__name__
        raise UserError(f"{prefix} cannot be written: {reason}.") from None


def write_folder(
    directory: str, model: AlbertModel, tokenizer: Tokenizer
) -> None:
    """Writes a checkpoint with the file names of the released folders.

    The vocabulary keeps our name: the original's flags name its path.
    """
    tokenizer.save(directory, model.config.max_position_embeddings)
    config = config_to_json(model.config)
    write_json(os.path.join(directory, CONFIG_FILE), config)
    arrays = stored_arrays(model, "google")
    write_checkpoint(os.path.join(directory, _CHECKPOINT), arrays)


def supports(head: type[Head], config: ModelConfig) -> bool:
    """Returns whether all weights of a head have a name in the original."""
    names = [google for _, google, _ in head.names_in_files(config)]
    return bool(names) and None not in names


def not_stored(model: AlbertModel, max_seq_length: int) -> Iterator[str]:
    """Yields a line for each property that the format does not store."""
    labels = model.labels or []
    if labels != [f"LABEL_{n}" for n in range(len(labels))]:
        yield f"Not stored: the names of the classes, {labels}."
    for name, value in model.head_options.items():
        yield f"Not stored: {name}={value}."
    yield from pooling_not_stored(model.config)
    limit = model.config.max_position_embeddings
    if max_seq_length != limit:
        yield (
            f"Not stored: max_seq_length={max_seq_length}; it is read back as "
            f"{limit}."
        )


def pooling_not_stored(config: ModelConfig) -> Iterator[str]:
    """Yields a line for a pooling that no other library has."""
    default = ModelConfig().pooling
    if config.pooling != default:
        yield (
            f"Not stored: pooling={config.pooling}; it is read back as "
            f"{default}."
        )


def check_values(
    values: Mapping[str, object],
    allowed: Mapping[str, tuple[object, ...]],
    source: str,
) -> None:
    """Raises UserError where a setting has none of its allowed values."""
    for name, choices in allowed.items():
        require(
            values.get(name, choices[0]) in choices,
            f"{source}: {name}={shown(values.get(name))} is not one of "
            f"{', '.join(map(str, choices))}.",
        )


def config_to_json(config: ModelConfig) -> dict:
    """Returns an `albert_config.json` that the original and we read.

    Raises:
        UserError: for settings that the original's code lacks.
    """
    values = vars(config)
    check_values(values, _THEIR_VALUES, "google-research/albert")
    return {
        **{name: values[name] for name in _THEIR_KEYS},
        "num_hidden_groups": file_groups(config, "google"),
        _OWN_KEY: {name: values[name] for name in _OWN_SETTINGS},
    }


def read_config(path: str) -> ModelConfig:
    """Returns the configuration in an `albert_config.json`.

    Differs from google-research/albert, which ignores unknown keys: they are
    refused, so that a misspelt setting is not replaced by its default.

    Raises:
        UserError: naming the file and the fault.
    """
    values = {
        name: value
        for name, value in read_json(path).items()
        if name not in _IGNORED_KEYS
    }
    own = values.pop(_OWN_KEY, {})
    require(
        isinstance(own, dict),
        f"{path}: expected {_OWN_KEY} to be an object, got {shown(own)}.",
    )
    for owner, names, known in (
        (_OWN_KEY, own, _OWN_SETTINGS),
        (
            "google-research/albert",
            values.keys() - {"layer_norm_eps"},
            _THEIR_KEYS,
        ),
    ):
        unknown = sorted(set(names).difference(known))
        require(
            not unknown,
            f"{path}: {owner} has no setting "
            f"{', '.join(map(shown, unknown[:9]))}; it has {', '.join(known)}.",
        )
    check_values(values, _THEIR_VALUES, path)
    require_architecture(values, path)
    config = from_dict(ModelConfig, values | own, path)
    if not own:
        check_groups(config, "google", path)
    return config


def config_beside(path: str) -> ModelConfig:
    """Returns the configuration in the folder of a checkpoint.

    Raises:
        UserError: when there is none, or it is faulty.
    """
    config = os.path.join(os.path.dirname(path), CONFIG_FILE)
    require(
        files.exists(config),
        f"{config} is missing: the checkpoint {path} needs the configuration "
        "it was trained with in its folder.",
    )
    return read_config(config)
