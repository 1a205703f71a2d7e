"""A model directory: configuration, tokenizer and weights, heads included.

transformers opens it as it is. What transformers saves opens here.
"""

import dataclasses
import os

from albert_tf.config import FeatureConfig, ModelConfig, UserError, require
from albert_tf.interchange import google_tf1
from albert_tf.interchange.model_files import (
    TaskRecord,
    read_task_record,
    replacing_directory,
)
from albert_tf.io import files
from albert_tf.modeling.models import AlbertModel, models
from albert_tf.modeling.weights import pretrained
from albert_tf.modeling.weights.config_json import ModelDescription
from albert_tf.modeling.weights.names import POOLER
from albert_tf.modeling.weights.stored_weights import (
    StoredWeights,
    has_pooler,
    heads_in,
    load_stored_weights,
)
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.tokenizer_base import Tokenizer


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """The contents of a model directory.

    Attributes:
        model: with its weights.
        tokenizer: the one it was trained with.
        max_seq_length: longest input it was trained on, in tokens.
        task: the task it was fine-tuned for, None where there is no record.
    """

    model: AlbertModel
    tokenizer: Tokenizer
    max_seq_length: int
    task: TaskRecord | None = None

    @property
    def labels(self) -> list[str] | None:
        """Names of the classes of a model that has any, else None."""
        return self.model.labels

    @property
    def features(self) -> FeatureConfig:
        """Settings of features: those of its task, if there is a record.

        Otherwise the defaults, but for questions and choices at most half of
        the length: other libraries save no record.
        """
        if self.task:
            return self.task.features
        config = FeatureConfig(max_seq_length=self.max_seq_length)
        half = self.max_seq_length // 2
        return dataclasses.replace(
            config,
            max_query_length=min(config.max_query_length, half),
            max_choice_length=min(config.max_choice_length, half),
        )

    def require_head(self, head: str, path: str, advice: str) -> None:
        """Raises UserError when the model has no such head."""
        require(
            head in self.model.head_names,
            f"{path} holds an {type(self.model).__name__}, which has no "
            f"{head} head; {advice}",
        )


def save_model_directory(
    directory: str,
    model: AlbertModel,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    task: TaskRecord | None = None,
) -> None:
    """Writes a model directory, replacing an existing one."""
    loaded = LoadedModel(model, tokenizer, max_seq_length, task)
    with replacing_directory(directory) as temporary:
        write_model_directory(temporary, loaded)


def write_model_directory(
    directory: str, loaded: LoadedModel, *, own_settings: bool = True
) -> None:
    """Writes the files of a model directory.

    Without `own_settings` config.json lacks the section of the settings that
    transformers does not have; sharing then comes back as layer groups.
    """
    model, tokenizer = loaded.model, loaded.tokenizer
    if loaded.task:
        loaded.task.write(directory)
    tokenizer.save(directory, model.config.max_position_embeddings)
    pretrained.write_model_files(
        directory,
        model,
        loaded.max_seq_length,
        special_ids={
            "pad_token_id": tokenizer.pad_id,
            "bos_token_id": tokenizer.cls_id,
            "eos_token_id": tokenizer.sep_id,
        },
        own_settings=own_settings,
    )


def load_model_directory(directory: str, dtype: str = "float32") -> LoadedModel:
    """Returns the model in a model directory, or in that of a run.

    Raises:
        UserError: for anything missing, unexpected, misshapen or damaged.
    """
    directory = _model_in(directory)
    description, stored = pretrained.read_model_files(directory)
    tokenizer = load_tokenizer(directory)
    check_vocab_size(description.config, tokenizer, directory)
    task = None
    # Of another model it may have stayed there.
    if description.ours:
        task = read_task_record(
            directory, description.config.max_position_embeddings
        )
    kind = models()[description.kind]
    arguments = pretrained.constructor_arguments(kind, description, stored)
    model = kind(description.config, dtype=dtype, **arguments)
    load_stored_weights(model, stored)
    return LoadedModel(model, tokenizer, description.max_seq_length, task)


def _model_in(directory: str) -> str:
    """Returns the model directory of a run directory, or the one given."""
    inner = os.path.join(directory, "model")
    if files.isfile(os.path.join(inner, pretrained.CONFIG_FILE)):
        return inner
    # Written by `bin.finetune --num_runs`.
    first = os.path.join(directory, "run-1")
    require(
        not files.isdir(os.path.join(first, "model")),
        f"{directory} holds several runs; name one of them, such as {first}.",
    )
    return directory


def check_vocab_size(
    config: ModelConfig, tokenizer: Tokenizer, path: str
) -> None:
    """Raises UserError when tokenizer and model differ in vocabulary size."""
    require(
        tokenizer.vocab_size == config.vocab_size,
        f"{path}: the tokenizer has {tokenizer.vocab_size} pieces and the "
        f"model vocab_size={config.vocab_size}; use the tokenizer that the "
        "model was trained with.",
    )


@dataclasses.dataclass(frozen=True)
class InitialWeights:
    """Weights to start a model from.

    Attributes:
        kind: the kind of the source, for messages.
        config: the architecture they fit.
        stored: the weights.
        directory: that of the tokenizer, if the source has one.
        description: from their config.json; a Google checkpoint has none.
    """

    kind: str
    config: ModelConfig
    stored: StoredWeights
    directory: str | None
    description: ModelDescription | None = None

    @property
    def source(self) -> str:
        """The file of the weights."""
        return self.stored.source

    @property
    def tokenizer_path(self) -> str:
        """The directory to look for their tokenizer in."""
        return self.directory or os.path.dirname(self.source) or "."

    @property
    def fingerprint(self) -> str:
        """A digest of the weights, whatever their path."""
        return self.stored.fingerprint


def find_initial_weights(path: str) -> InitialWeights:
    """Returns the weights at `path`.

    `path` is a model directory (also one that transformers saved), a run
    directory, or a Google TF1 checkpoint: its prefix, or a directory with
    one checkpoint and `albert_config.json`.

    Raises:
        UserError: when it is none of these or cannot be read.
    """
    checkpoint = google_tf1.find_checkpoint(path)
    if checkpoint:
        config = google_tf1.config_beside(checkpoint)
        stored = google_tf1.open_weights(checkpoint)
        pretrained.check_size(config, stored, checkpoint)
        return InitialWeights("Google TF1 checkpoint", config, stored, None)
    directory = _model_in(path)
    if files.isfile(os.path.join(directory, pretrained.CONFIG_FILE)):
        description, stored = pretrained.read_model_files(directory)
        kind = "model directory" if directory == path else "run directory"
        if not description.ours:
            kind = "Hugging Face directory"
        return InitialWeights(
            kind, description.config, stored, directory, description
        )
    require(files.exists(path), f"{path} does not exist.")
    raise UserError(
        f"{path} is neither a model directory, a run directory with a "
        "finished model, nor a Google TF1 checkpoint or its unpacked folder."
    )


def initialize(model: AlbertModel, weights: InitialWeights) -> str:
    """Loads the initial weights into the model; returns a line for the log.

    The encoder must fit in full, or it is a UserError, but for a pooler that
    the source does not have: that is new, and so is always the head of a task.
    A pretraining head that both sides have is loaded.
    """
    stored = weights.stored
    held = heads_in(stored)
    new_heads = [
        name
        for name, head in model.heads.items()
        if not head.is_pretrained or name not in held
    ]
    if not has_pooler(stored):
        new_heads.append(POOLER)
    lines = load_stored_weights(
        model, stored, new_heads=tuple(new_heads), drop_other_heads=True
    )
    read = f"Read weights from the {weights.kind} {weights.source}."
    return " ".join([read, *lines])
