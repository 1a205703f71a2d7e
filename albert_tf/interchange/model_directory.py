"""A model directory: configuration, tokenizer and weights, heads included.

transformers opens it as it is. What transformers saves opens here.
"""

import contextlib
import dataclasses
import functools
import glob
import hashlib
import os
import shutil
from collections.abc import Iterator

import keras
import numpy as np

from albert_tf.config import ModelConfig, UserError, read_json, write_json
from albert_tf.interchange import google_tf1
from albert_tf.modeling import config_json, weights_file
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
)
from albert_tf.modeling.weight_names import (
    NamedWeight,
    assign_weights,
    file_groups,
    named_weights,
)
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.tokenizer_base import Tokenizer

_PRETRAINING = "AlbertForPreTraining"
_CLASSIFICATION = "AlbertForSequenceClassification"

# Hugging Face's class name -> how to build ours.
_ARCHITECTURES = {
    _PRETRAINING: lambda config, labels, **options: AlbertForPretraining(
        config, **options
    ),
    _CLASSIFICATION: lambda config, labels, **options: AlbertForClassification(
        config, len(labels), **options
    ),
}


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """What a model directory holds.

    Attributes:
        model: with its weights.
        tokenizer: the one it was trained with.
        labels: names of the classes of a classifier, else None.
        max_seq_length: longest input it was trained on, in tokens.
    """

    model: keras.Model
    tokenizer: Tokenizer
    labels: list[str] | None
    max_seq_length: int


@contextlib.contextmanager
def replacing_directory(directory: str) -> Iterator[str]:
    """Gives a temporary directory that takes `directory`'s place at the end.

    When the body fails, what stood there before still stands.
    """
    directory = directory.rstrip("/")
    os.makedirs(os.path.dirname(directory) or ".", exist_ok=True)
    temporary, old = f"{directory}.tmp", f"{directory}.old"
    if os.path.isdir(old) and not os.path.isdir(directory):
        # A process was killed between the two renames below.
        os.rename(old, directory)
    for leftover in (temporary, old):
        shutil.rmtree(leftover, ignore_errors=True)
    os.makedirs(temporary)
    try:
        yield temporary
        flush_files(temporary)
        if os.path.isdir(directory):
            os.rename(directory, old)
        os.rename(temporary, directory)
    except BaseException:
        if os.path.isdir(old) and not os.path.isdir(directory):
            os.rename(old, directory)
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def flush_files(directory: str) -> None:
    """Waits until every file of a directory is on the disk."""
    for place, _, names in os.walk(directory):
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                os.fsync(file.fileno())


def save_model_directory(
    directory: str,
    model: keras.Model,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    labels: list[str] | None = None,
) -> None:
    """Writes a model directory, replacing one that stands there."""
    architecture = _CLASSIFICATION if labels else _PRETRAINING
    with replacing_directory(directory) as temporary:
        tokenizer.save(temporary, model.config.max_position_embeddings)
        values = {}
        for row in named_weights(model):
            value = np.asarray(
                keras.ops.convert_to_numpy(row.variable), np.float32
            )
            values[row.huggingface] = (
                value.T if row.huggingface_transposed else value
            )
        weights_file.write_weights(
            os.path.join(temporary, "model.safetensors"), values
        )
        write_json(
            os.path.join(temporary, "config.json"),
            config_json.config_to_json(
                model.config,
                architecture=architecture,
                file_groups=file_groups(model),
                special_ids={
                    "pad_token_id": tokenizer.pad_id,
                    "bos_token_id": tokenizer.cls_id,
                    "eos_token_id": tokenizer.sep_id,
                },
                labels=labels,
                max_seq_length=max_seq_length,
            ),
        )


def load_model_directory(directory: str, dtype: str = "float32") -> LoadedModel:
    """Returns the model in a directory, every weight from its file.

    A run directory stands for the model in it.

    Raises:
        UserError: for anything missing, unexpected, misshapen or damaged.
    """
    if os.path.isfile(os.path.join(directory, "model", "config.json")):
        directory = os.path.join(directory, "model")
    path = _config_path(directory)
    values = read_json(path)
    config = config_json.config_from_json(values, path)
    architecture = config_json.architecture_from_json(values)
    if architecture not in _ARCHITECTURES:
        raise UserError(
            f"{path}: architectures is {architecture}; "
            f"one of {', '.join(_ARCHITECTURES)} is needed."
        )
    labels = None
    if architecture == _CLASSIFICATION:
        labels = config_json.labels_from_json(values, path)
    tokenizer = load_tokenizer(directory)
    check_vocab_size(config, tokenizer, directory)
    model = _ARCHITECTURES[architecture](config, labels, dtype=dtype)
    weights = os.path.join(directory, "model.safetensors")
    arrays = weights_file.read_weights(weights)
    rows = named_weights(model)
    _refuse_unexpected(rows, arrays, "huggingface", weights)
    assign_weights(rows, arrays, source=weights, form="huggingface")
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        labels=labels,
        max_seq_length=config_json.max_seq_length_from_json(
            values, config, path
        ),
    )


def check_vocab_size(
    config: ModelConfig, tokenizer: Tokenizer, place: str
) -> None:
    """Raises UserError when tokenizer and model count different pieces."""
    if tokenizer.vocab_size != config.vocab_size:
        raise UserError(
            f"{place}: the tokenizer has {tokenizer.vocab_size} pieces and "
            f"the model vocab_size={config.vocab_size}; they must be equal. "
            "Use the tokenizer that the model was trained with."
        )


def _config_path(directory: str) -> str:
    path = os.path.join(directory, "config.json")
    if not os.path.isfile(path):
        raise UserError(
            f"{directory} is not a model directory: it has no config.json. "
            "A run writes its model to RUN_DIR/model when it ends."
        )
    return path


def _refuse_unexpected(
    rows: list[NamedWeight], arrays: dict, form: str, source: str
) -> None:
    extra = sorted(set(arrays) - {getattr(row, form) for row in rows})
    if extra:
        raise UserError(
            f"{source} holds unexpected weights: {', '.join(extra)}."
        )


@dataclasses.dataclass(frozen=True)
class InitialWeights:
    """Weights to start a model from.

    Attributes:
        kind: what was found, for people.
        source: its path.
        config: the architecture they fit.
        form: whose names they carry, "google" or "huggingface".
        arrays: by name.
        directory: holds the tokenizer, if the source has one.
    """

    kind: str
    source: str
    config: ModelConfig
    form: str
    arrays: dict[str, np.ndarray]
    directory: str | None

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the weights, whatever the path is called."""
        digest = hashlib.sha256()
        for name, value in sorted(self.arrays.items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()


def find_initial_weights(path: str) -> InitialWeights:
    """Returns the weights at `path`, saying what it found there.

    `path` is a model directory (also one that transformers saved), a run
    directory, or a Google TF1 checkpoint: its prefix, or a directory with
    one checkpoint and `albert_config.json`.

    Raises:
        UserError: when it is none of these or cannot be read.
    """
    run_model = os.path.join(path, "model")
    found = sorted(glob.glob(os.path.join(glob.escape(path), "*.ckpt*.index")))
    if found:
        if len(found) > 1:
            raise UserError(
                f"{path} holds {len(found)} checkpoints; name one of them, "
                f"for example {found[-1].removesuffix('.index')}."
            )
        path = found[0].removesuffix(".index")
    if google_tf1.is_checkpoint(path):
        return InitialWeights(
            "Google TF1 checkpoint",
            path,
            google_tf1.config_beside(path),
            "google",
            google_tf1.read_weights(path),
            None,
        )
    for kind, directory in (
        ("run directory", run_model),
        ("model directory", path),
    ):
        file = os.path.join(directory, "config.json")
        if os.path.isfile(file) and os.path.isfile(
            os.path.join(directory, "model.safetensors")
        ):
            return InitialWeights(
                kind,
                directory,
                config_json.config_from_json(read_json(file), file),
                "huggingface",
                weights_file.read_weights(
                    os.path.join(directory, "model.safetensors")
                ),
                directory,
            )
    if not os.path.exists(path):
        raise UserError(f"{path} does not exist.")
    raise UserError(
        f"{path} is neither a model directory, a run directory with a "
        "finished model, nor a Google TF1 checkpoint."
    )


def initialize(model: keras.Model, weights: InitialWeights) -> str:
    """Gives the model the initial weights and returns what happened, a line.

    The encoder must fit in full. A pretraining head that both sides have is
    taken too; a classification head is always new, for its labels are those
    of another task.

    Raises:
        UserError: naming each weight of the encoder that is missing,
            unexpected or misshapen.
    """
    form = weights.form
    head = getattr(model, "classification", None)
    task_head = {v.path for v in head.variables} if head else set()
    rows = [
        row
        for row in named_weights(model)
        if row.in_encoder
        or (
            getattr(row, form) in weights.arrays
            and row.variable.path not in task_head
        )
    ]
    prefix = "albert." if form == "huggingface" else "bert/"
    encoder = {n: v for n, v in weights.arrays.items() if n.startswith(prefix)}
    in_encoder = [row for row in rows if row.in_encoder]
    _refuse_unexpected(in_encoder, encoder, form, weights.source)
    assign_weights(rows, weights.arrays, source=weights.source, form=form)
    used = {getattr(row, form) for row in rows}
    unused = sorted(set(weights.arrays) - used)
    fresh = [
        row
        for row in named_weights(model)
        if not any(row.variable is other.variable for other in rows)
    ]
    line = f"Weights from the {weights.kind} {weights.source}: {len(used)}"
    if fresh:
        names = ", ".join(row.variable.path for row in fresh)
        line += f"; new: {names}"
    if unused:
        line += f"; not needed: {', '.join(unused)}"
    return line + "."
