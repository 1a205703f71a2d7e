"""Checkpoints of google-research/albert (TensorFlow 1), both ways.

Main entries: `find_checkpoint`, `open_weights`, and `save_folder`, which
writes one as the released archives have it.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from albert_tf.config import UserError, require
from albert_tf.interchange import google_config, tensor_bundle
from albert_tf.interchange.model_files import (
    TOKENIZER_FILES,
    replacing_directory,
)
from albert_tf.io import files
from albert_tf.io.json_files import write_json
from albert_tf.modeling.heads import Head
from albert_tf.modeling.models import AlbertModel
from albert_tf.modeling.weights.stored_weights import (
    StoredWeights,
    stored_arrays,
)
from albert_tf.text.tokenizer_base import Tokenizer

# The name of the released checkpoints, which the original predicts from.
_CHECKPOINT = "model.ckpt-best"
_INDEX = f"{_CHECKPOINT}.index"
# The files that `save_folder` writes.
FILES = frozenset(
    (
        *TOKENIZER_FILES,
        google_config.CONFIG_FILE,
        "checkpoint",
        _INDEX,
        f"{_CHECKPOINT}.data-00000-of-00001",
    )
)

# Suffix of names in checkpoints of tf.train.Checkpoint.
_OBJECT_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"

_KERAS_LAYER_NORM = re.compile(r"(?<![^/])layer_normalization(_1)?(?![^/])")
_FILE_SUFFIX = re.compile(r"\.(index|meta|data-\d{5,}-of-\d{5,})$")
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")


def find_checkpoint(path: str) -> str | None:
    """Returns the prefix of the checkpoint at `path`, None if there is none.

    `path` is a prefix, one of a checkpoint's files, or a directory with one
    checkpoint. `open_weights` checks that it is complete.

    Raises:
        UserError: for a directory with several, and for an archive.
    """
    require(
        not (path.endswith(_ARCHIVES) and files.isfile(path)),
        f"{path} is an archive; unpack it and name the folder within.",
    )
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

    Training state is ignored: slots, which optimizers and averages name after
    their variable (`X/adam_m`), and scalars, which are counters
    (`global_step`). Names are the original's: `layer_normalization`, of forks
    with Keras' LayerNormalization, becomes `LayerNorm`, and the `module/` of
    TF-Hub exports is removed.

    Raises:
        UserError: when the checkpoint is damaged, or two of its variables
            get the same name.
    """
    stored: dict[str, tensor_bundle.StoredVariable] = {}
    variables = tensor_bundle.read_index(path)
    for name, variable in sorted(variables.items()):
        require(
            not name.endswith(_OBJECT_SUFFIX),
            f"{path} was written by tf.train.Checkpoint ({name}); expected a "
            "checkpoint of google-research/albert.",
        )
        if name.rpartition("/")[0] in variables or variable.shape == ():
            continue
        known = _KERAS_LAYER_NORM.sub(
            r"LayerNorm\1", name.removeprefix("module/")
        )
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


def head_of(shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Returns the heads that variables of these names and shapes may be.

    None for a bare encoder, as of TF-Hub; several where the original gives
    them the same variables, so that the user has to choose.
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

    The file `checkpoint` beside it names it as the latest. A `global_step` of
    0 is added: to evaluate and to predict, the original's Estimator restores
    every variable of its graph, and that is one of them.

    Args:
        prefix: path without the suffixes `.index` and `.data-...`, in a
            directory on disk.
        arrays: weights by the original's names.

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
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{prefix} cannot be written: {reason}.") from None


def save_folder(
    directory: str,
    model: AlbertModel,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    replaces: Collection[str],
) -> None:
    """Writes a checkpoint with the file names of the released folders.

    The vocabulary keeps our name: the original's flags name its path.
    """
    arrays = stored_arrays(model, "google")
    config = google_config.config_to_json(model.config)
    with replacing_directory(
        directory, last=_INDEX, replaces=replaces
    ) as temporary:
        tokenizer.save(temporary, model.config.max_position_embeddings)
        path = os.path.join(temporary, google_config.CONFIG_FILE)
        write_json(path, config)
        write_checkpoint(os.path.join(temporary, _CHECKPOINT), arrays)


def supports(head: type[Head]) -> bool:
    """Returns whether all weights of a head have a name in the original."""
    names = [google for _, google, _ in head.weight_names]
    return bool(names) and None not in names


def not_stored(
    model: AlbertModel, tokenizer: Tokenizer, max_seq_length: int
) -> Iterator[str]:
    """Yields a line for each property that the format does not store."""
    labels = model.labels or []
    if labels != [f"LABEL_{n}" for n in range(len(labels))]:
        yield f"Not stored: the names of the classes, {labels}."
    for name, value in model.head_options.items():
        yield f"Not stored: {name}={value}."
    yield from length_not_stored(model, max_seq_length)


def length_not_stored(model: AlbertModel, max_seq_length: int) -> Iterator[str]:
    """Yields a line where `max_seq_length` is not the default."""
    default = model.config.max_position_embeddings
    if max_seq_length != default:
        yield (
            f"Not stored: max_seq_length={max_seq_length}; it is read back as "
            f"{default}."
        )
