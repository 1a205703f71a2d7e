"""A model directory: configuration, tokenizer and weights, heads included.

transformers opens it as it is. What transformers saves opens here.
"""

import dataclasses
import os

from albert_tf.config import (
    PART_LENGTHS,
    FeatureConfig,
    ModelConfig,
    UserError,
    lengths_within,
    override,
    require,
)
from albert_tf.interchange import google_tf1
from albert_tf.interchange.model_files import (
    TaskRecord,
    read_task_record,
    replacing_directory,
)
from albert_tf.io import files, hub
from albert_tf.modeling.models import AlbertModel, models
from albert_tf.modeling.weights import pretrained
from albert_tf.modeling.weights.model_paths import hub_name, local_model
from albert_tf.modeling.weights.pretrained import StoredModel
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.tokenizer_base import Tokenizer

# Rows by which embeddings are rounded up, at most: to a multiple of 128.
_MAX_PADDING = 128


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

        Otherwise the defaults, as fine-tuning fits them into the length:
        other libraries save no record.
        """
        if self.task:
            return self.task.features
        config = FeatureConfig(max_seq_length=self.max_seq_length)
        return override(config, lengths_within(config, PART_LENGTHS))

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

    Without `own_settings` there is no task.json, and config.json lacks the
    section of the settings that transformers does not have; sharing then
    comes back as layer groups.
    """
    model, tokenizer = loaded.model, loaded.tokenizer
    if loaded.task and own_settings:
        loaded.task.write(directory)
    tokenizer.save(directory, loaded.max_seq_length)
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

    `hf://owner/name`, or `hf://owner/name@revision`, is one on the hub.

    Raises:
        UserError: for anything missing, unexpected, misshapen or damaged.
    """
    directory = local_model(directory)
    stored = pretrained.read_model_files(directory)
    description = stored.description
    tokenizer = load_fitting_tokenizer(directory, stored.config)
    task = stored_task_record(stored)
    description.require_kind()
    (kind,) = description.kinds
    model, _ = pretrained.restore_model(models()[kind], stored, dtype=dtype)
    return LoadedModel(model, tokenizer, description.max_seq_length, task)


def load_task_record(directory: str) -> TaskRecord | None:
    """Returns the task of a model without loading it, None without a record.

    `directory` is what `load_model_directory` takes, and the errors are the
    same.
    """
    stored = pretrained.read_model_files(local_model(directory))
    stored.description.require_kind()
    return stored_task_record(stored)


def stored_task_record(stored: StoredModel) -> TaskRecord | None:
    """Returns the task of a model read from files, None without a record."""
    # A record of another model may have stayed there.
    if not (stored.directory and stored.description.ours):
        return None
    return read_task_record(
        stored.directory, stored.config.max_position_embeddings
    )


def load_fitting_tokenizer(path: str, config: ModelConfig) -> Tokenizer:
    """Returns the tokenizer at a path, with as many pieces as a model has.

    transformers can round up the rows of a model's embeddings
    (`pad_to_multiple_of`): unused pieces fill such a vocabulary.

    Raises:
        UserError: when it has other sizes.
    """
    tokenizer = load_tokenizer(path)
    lacking = config.vocab_size - tokenizer.vocab_size
    if 0 < lacking < _MAX_PADDING and config.vocab_size % 8 == 0:
        return tokenizer.with_unused(lacking)
    require(
        lacking == 0,
        f"{path}: the tokenizer has {tokenizer.vocab_size} pieces and the "
        f"model vocab_size={config.vocab_size}, where as many are expected, or "
        f"up to {_MAX_PADDING - 1} more in a multiple of 8; use the tokenizer "
        "that the model was trained with.",
    )
    return tokenizer


def find_initial_weights(path: str) -> StoredModel:
    """Returns the model at `path`, its weights not yet read.

    `path` is a model directory (also one that transformers saved), a run
    directory, a model on the hub (`hf://owner/name` or
    `hf://owner/name@revision`), or a Google TF1 checkpoint: its prefix, or a
    directory with one checkpoint and `albert_config.json`.

    Raises:
        UserError: when it is none of these or cannot be read.
    """
    is_on_hub = hub.is_on_hub(path)
    checkpoint = None if is_on_hub else google_tf1.find_checkpoint(path)
    if checkpoint:
        return google_tf1.read_model(checkpoint)
    directory = local_model(path)
    if files.isfile(os.path.join(directory, pretrained.CONFIG_FILE)):
        stored = pretrained.read_model_files(directory)
        if is_on_hub:
            name = hub_name(path, directory)
            return dataclasses.replace(stored, hub_name=name)
        if stored.description.ours and directory != path:
            stored = dataclasses.replace(stored, origin="run directory")
        return stored
    pretrained.require_existing(path)
    raise UserError(
        f"{path} is neither a model directory, a run directory with a "
        "model, nor a Google TF1 checkpoint or its unpacked folder."
    )
