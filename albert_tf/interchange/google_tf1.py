"""Checkpoints of google-research/albert (TensorFlow 1), both ways.

Main entries: `find_checkpoint`, `open_weights`, `write_checkpoint`, and
`read_config`, `config_to_json` for the `albert_config.json` beside it.
"""

import os
import re
import tempfile
from collections.abc import Mapping

import numpy as np

from albert_tf.config import ModelConfig, UserError, override, shown
from albert_tf.interchange import tensor_bundle
from albert_tf.io import files
from albert_tf.io.json_files import read_json
from albert_tf.modeling.weights.config_json import require_architecture
from albert_tf.modeling.weights.names import check_groups
from albert_tf.modeling.weights.stored_weights import StoredWeights

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
# What the original's AlbertConfig knows, and the activations it shares with
# us under the same names; its "gelu" is the tanh form.
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
_THEIR_ACTIVATIONS = ("gelu", "relu")
_THEIR_LAYER_NORM_EPS = 1e-12
# What it has no word for: settings within the key "albert_tf", and nowhere
# else. It takes any key of the file, and reads only those it knows.
_OWN_KEY = "albert_tf"
_OWN_SETTINGS = ("sharing", "num_hidden_groups", "classifier_dropout_prob")

# Of checkpoints that tf.train.Checkpoint wrote.
_OBJECT_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"

_KERAS_LAYER_NORM = re.compile(r"(?<![^/])layer_normalization(_1)?(?![^/])")
_FILE_SUFFIX = re.compile(r"\.(index|meta|data-\d{5,}-of-\d{5,})$")
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")


def find_checkpoint(path: str) -> str | None:
    """Returns the prefix of the checkpoint at `path`, None if there is none.

    `path` is a prefix, one of a checkpoint's files, or a directory with one
    checkpoint; whether that is whole, `open_weights` says.

    Raises:
        UserError: for a directory with several, and for an archive.
    """
    if path.endswith(_ARCHIVES) and files.isfile(path):
        raise UserError(
            f"{path} is an archive; unpack it and name the folder within."
        )
    if not files.isdir(path):
        prefix = _FILE_SUFFIX.sub("", path)
        directory, base = os.path.split(prefix)
        return prefix if base in _checkpoints(directory or ".") else None
    names = sorted(n for n in _checkpoints(path) if not n.startswith("."))
    found = [os.path.join(path, name) for name in names]
    if len(found) > 1:
        raise UserError(
            f"{path} holds {len(found)} checkpoints; name one of them, for "
            f"example {found[-1]}. There are {', '.join(names)}."
        )
    return found[0] if found else None


def _checkpoints(directory: str) -> set[str]:
    """Returns the names of the checkpoints in a directory."""
    if not files.isdir(directory):
        return set()
    return {
        _FILE_SUFFIX.sub("", name)
        for name in files.listdir(directory)
        if _FILE_SUFFIX.search(name) and not name.endswith(".meta")
    }


def open_weights(path: str) -> StoredWeights:
    """Returns the weights of the checkpoint `path`, a prefix.

    Training's state is left out: slots, which optimizers and averages name
    after their variable (`X/adam_m`), and scalars, which count (`global_step`)
    and are never weights. Names are the original's: `layer_normalization`, of
    those who replaced its LayerNorm by Keras', becomes `LayerNorm`, and the
    `module/` of TF-Hub exports is dropped.

    Raises:
        UserError: when the checkpoint is damaged, or two of its variables
            come to the same name.
    """
    stored: dict[str, tensor_bundle.StoredVariable] = {}
    variables = tensor_bundle.read_index(path)
    for name, variable in sorted(variables.items()):
        if name.endswith(_OBJECT_SUFFIX):
            raise UserError(
                f"{path} was written by tf.train.Checkpoint ({name}); a "
                "checkpoint of google-research/albert is needed."
            )
        if name.rpartition("/")[0] in variables or variable.shape == ():
            continue
        known = _original_name(name)
        if known in stored:
            raise UserError(
                f"{path} holds both {stored[known].name} and {name}, which "
                f"are two names of {known}; remove one."
            )
        stored[known] = variable
    return StoredWeights(
        source=path,
        form="google",
        shapes={name: stored[name].shape for name in sorted(stored)},
        read=lambda name: tensor_bundle.read_variable(path, stored[name]),
    )


def _original_name(name: str) -> str:
    return _KERAS_LAYER_NORM.sub(r"LayerNorm\1", name.removeprefix("module/"))


def head_of(shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Returns the heads that variables of these names and shapes may be.

    None of them for a bare encoder, as of TF-Hub; several where the original
    gives them the same variables, and then only the user knows.
    """
    heads: tuple[str, ...] = ()
    if any(name.startswith("cls/seq_relationship/") for name in shapes):
        heads += ("pretraining",)
    elif any(name.startswith("cls/predictions/") for name in shapes):
        heads += ("masked_lm",)
    if "cls/squad/output_weights" in shapes:
        heads += ("span",)
    if "start_logits/dense/kernel" in shapes:
        heads += ("answerable_span",)
    if "output_weights" in shapes:
        heads += ("classification",)
        if shapes["output_weights"][:1] == (1,):
            heads += ("regression", "multiple_choice")
    return heads


def write_checkpoint(prefix: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint that the original restores by name.

    Beside it, `checkpoint` says that it is the latest of its directory. A
    `global_step` of 0 is added: the original asks for none where it starts
    training from a checkpoint, but to evaluate and to predict, its Estimator
    restores every variable of its graph, and that is one of them.

    Args:
        prefix: path without the suffixes `.index` and `.data-...`. The
            original predicts from `model.ckpt-best`.
        arrays: weights by the original's names.

    Raises:
        UserError: when it cannot be written.
    """
    import tensorflow as tf

    directory, base = os.path.split(prefix)
    values = {name: np.asarray(a, np.float32) for name, a in arrays.items()}
    tensors = {**values, "global_step": np.int64(0)}
    state = tf.compat.v1.train.generate_checkpoint_state_proto(
        directory or ".", base, all_model_checkpoint_paths=[base]
    )
    try:
        with (
            files.local_directory(directory or ".", f"{base}.index") as place,
            tempfile.TemporaryDirectory(
                prefix=f".{base}.", dir=place
            ) as temporary,
        ):
            tf.raw_ops.SaveV2(
                prefix=os.path.join(temporary, base),
                tensor_names=list(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=[tf.constant(value) for value in tensors.values()],
            )
            with open(os.path.join(temporary, "checkpoint"), "w") as file:
                file.write(str(state))
            _move_files(temporary, place, base)
    except (OSError, tf.errors.OpError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{prefix} cannot be written: {reason}.") from None


def _move_files(temporary: str, directory: str, base: str) -> None:
    """Moves a checkpoint's files so that at no time a part looks whole."""
    index = base + ".index"
    if os.path.lexists(os.path.join(directory, index)):
        os.remove(os.path.join(directory, index))
    for name in (base + ".data-00000-of-00001", index, "checkpoint"):
        with open(os.path.join(temporary, name), "rb") as file:
            os.fsync(file.fileno())
        os.replace(os.path.join(temporary, name), os.path.join(directory, name))


def config_to_json(config: ModelConfig, *, file_groups: int) -> dict:
    """Returns an `albert_config.json` that the original and we read.

    Args:
        config: the architecture.
        file_groups: layer groups in the checkpoint.

    Raises:
        UserError: for what the original's code would compute otherwise.
    """
    if config.hidden_act not in _THEIR_ACTIVATIONS:
        raise UserError(
            f"hidden_act={config.hidden_act!r} has no name in a Google "
            f"checkpoint's {CONFIG_FILE}; only "
            f"{', '.join(_THEIR_ACTIVATIONS)} have."
        )
    if config.layer_norm_eps != _THEIR_LAYER_NORM_EPS:
        raise UserError(
            f"layer_norm_eps={config.layer_norm_eps} cannot be said in a "
            f"Google checkpoint's {CONFIG_FILE}; only "
            f"{_THEIR_LAYER_NORM_EPS} can, which the original always takes."
        )
    values = {name: getattr(config, name) for name in _THEIR_KEYS}
    values["num_hidden_groups"] = file_groups
    values[_OWN_KEY] = {name: getattr(config, name) for name in _OWN_SETTINGS}
    return values


def read_config(path: str) -> ModelConfig:
    """Returns the configuration in an `albert_config.json`.

    Raises:
        UserError: naming the file and what is wrong with it.
    """
    values = {
        name: value
        for name, value in read_json(path).items()
        if name not in _IGNORED_KEYS
    }
    own = values.pop(_OWN_KEY, {})
    if not isinstance(own, dict):
        raise UserError(
            f"{path}: {_OWN_KEY} is of type {type(own).__name__}; an object "
            "is needed."
        )
    unknown = sorted(set(own) - set(_OWN_SETTINGS))
    if unknown:
        raise UserError(
            f"{path}: {_OWN_KEY} has no setting {unknown[0]!r}; it has "
            f"{', '.join(_OWN_SETTINGS)}."
        )
    _check_keys(values, path)
    settings = {name: values[name] for name in _THEIR_KEYS if name in values}
    try:
        config = override(ModelConfig(), {**settings, **own})
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    if not own:
        check_groups(config, "google", path)
    return config


def _check_keys(values: Mapping[str, object], path: str) -> None:
    """Raises UserError for what the original's model would not be.

    Differs from google-research/albert, which ignores unknown keys: they are
    refused here, so that a slip of the pen is not taken for a default.
    """
    unknown = sorted(set(values) - {*_THEIR_KEYS, "layer_norm_eps"})
    if unknown:
        names = ", ".join(map(shown, unknown[:9]))
        raise UserError(
            f"{path}: google-research/albert has no setting {names}; it has "
            f"{', '.join(_THEIR_KEYS)}."
        )
    epsilon = values.get("layer_norm_eps", _THEIR_LAYER_NORM_EPS)
    if epsilon != _THEIR_LAYER_NORM_EPS:
        raise UserError(
            f"{path}: layer_norm_eps={shown(epsilon)} must be "
            f"{_THEIR_LAYER_NORM_EPS}, which google-research/albert always "
            "takes."
        )
    activation = values.get("hidden_act", "gelu")
    if activation not in _THEIR_ACTIVATIONS:
        raise UserError(
            f"{path}: hidden_act={shown(activation)} is not one of "
            f"{', '.join(_THEIR_ACTIVATIONS)}."
        )
    require_architecture(values, path)


def config_beside(path: str) -> ModelConfig:
    """Returns the configuration in the folder of a checkpoint.

    Raises:
        UserError: when there is none, or it is faulty.
    """
    config = os.path.join(os.path.dirname(path), CONFIG_FILE)
    if not files.exists(config):
        raise UserError(
            f"{config} is missing: the checkpoint {path} needs the "
            "configuration it was trained with in its folder."
        )
    return read_config(config)
