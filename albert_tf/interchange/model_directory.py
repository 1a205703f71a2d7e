"""A model directory: configuration, tokenizer and weights, heads included.

transformers opens it as it is. What transformers saves opens here.
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Collection, Iterator

from albert_tf.config import FeatureConfig, ModelConfig, UserError
from albert_tf.interchange import google_tf1
from albert_tf.interchange.task_record import (
    TASK_FILE,
    TaskRecord,
    read_task_record,
)
from albert_tf.io import files
from albert_tf.modeling.models import AlbertModel, models
from albert_tf.modeling.weights import pretrained
from albert_tf.modeling.weights.config_json import ModelDescription
from albert_tf.modeling.weights.stored_weights import (
    StoredWeights,
    fill_model,
    heads_in,
)
from albert_tf.text.sentencepiece_tokenizer import MODEL_FILE
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.tokenizer_base import CONFIG_FILE, JSON_FILE, Tokenizer
from albert_tf.text.wordpiece_tokenizer import VOCAB_FILE

TOKENIZER_FILES = (MODEL_FILE, VOCAB_FILE, JSON_FILE, CONFIG_FILE)
MODEL_FILES = (pretrained.CONFIG_FILE, pretrained.WEIGHTS_FILE)
# What `save_model_directory` writes.
FILES = frozenset((*TOKENIZER_FILES, *MODEL_FILES, TASK_FILE))
# What a directory is called while another takes its place.
_OLD = ".old"


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """What a model directory holds.

    Attributes:
        model: with its weights.
        tokenizer: the one it was trained with.
        max_seq_length: longest input it was trained on, in tokens.
        task: what it was fine-tuned for; None where the directory does not
            tell.
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
        """How examples become sequences; as its task had it, if it tells."""
        if self.task:
            return self.task.features
        return FeatureConfig(max_seq_length=self.max_seq_length)

    def require_head(self, head: str, place: str, advice: str) -> None:
        """Raises UserError when the model has no such head."""
        if head not in self.model.head_names:
            raise UserError(
                f"{place} holds an {type(self.model).__name__}, which has no "
                f"{head} head; {advice}"
            )


@contextlib.contextmanager
def replacing_directory(
    directory: str,
    last: str = pretrained.CONFIG_FILE,
    *,
    replaces: Collection[str] = FILES,
) -> Iterator[str]:
    """Gives a new directory that takes `directory`'s place at the end.

    When the body fails, what stood there before still stands.

    Args:
        directory: made where missing.
        last: the file whose lack says that a directory in a bucket is not
            whole.
        replaces: names in `directory` that are removed; what has any other
            name stays in it.
    """
    if files.is_remote(directory):
        with files.local_directory(
            directory, last, replaces=replaces
        ) as temporary:
            yield temporary
        return
    with files.new_directory(directory) as temporary:
        yield temporary
        flush_files(temporary)
        old = f"{temporary}{_OLD}"
        if os.path.isdir(directory):
            os.rename(directory, old)
        try:
            os.rename(temporary, directory)
        except BaseException:
            if os.path.isdir(old):
                os.rename(old, directory)
            raise
    if os.path.isdir(old):
        _empty(old, directory, replaces)


def recover_directory(
    directory: str, *, replaces: Collection[str] = FILES
) -> None:
    """Ends what `replacing_directory` had begun in a process that was killed.

    Only for a place where no other process writes. What stood there before
    is put back if it was already out of the way.
    """
    if files.is_remote(directory):
        return
    parent, name = os.path.split(os.path.abspath(directory))
    for found in files.listdir(parent):
        if not files.is_new_directory(found, name):
            continue
        path = os.path.join(parent, found)
        if not path.endswith(_OLD):
            shutil.rmtree(path)
        elif os.path.isdir(directory):
            _empty(path, directory, replaces)
        else:
            os.rename(path, directory)


def _empty(old: str, directory: str, replaces: Collection[str]) -> None:
    """Moves what is not replaced into the new directory, removes the rest."""
    for name in os.listdir(old):
        path, place = os.path.join(old, name), os.path.join(directory, name)
        if name not in replaces:
            if not os.path.lexists(place):
                os.rename(path, place)
        elif os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)
    # What found no place is kept there.
    if not os.listdir(old):
        os.rmdir(old)


def flush_files(directory: str) -> None:
    """Waits until every file of a directory is on the disk."""
    for place, _, names in os.walk(directory):
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                os.fsync(file.fileno())


def save_model_directory(
    directory: str,
    model: AlbertModel,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    own_settings: bool = True,
    task: TaskRecord | None = None,
    replaces: Collection[str] = FILES,
) -> None:
    """Writes a model directory, replacing one that stands there.

    Args:
        directory: made where missing.
        model: of any class.
        tokenizer: the one it was trained with.
        max_seq_length: longest text it was trained on, in tokens.
        own_settings: whether config.json says what transformers has no word
            for; without, the modes of sharing come back as layer groups.
        task: what it was fine-tuned for, if it was.
        replaces: see `replacing_directory`.
    """
    with replacing_directory(directory, replaces=replaces) as temporary:
        if task:
            task.write(temporary)
        tokenizer.save(temporary, model.config.max_position_embeddings)
        pretrained.write_model_files(
            temporary,
            model,
            pretrained.describe(model, max_seq_length),
            special_ids={
                "pad_token_id": tokenizer.pad_id,
                "bos_token_id": tokenizer.cls_id,
                "eos_token_id": tokenizer.sep_id,
            },
            own_settings=own_settings,
        )


def load_model_directory(directory: str, dtype: str = "float32") -> LoadedModel:
    """Returns the model in a directory, every weight from its file.

    A run directory stands for the model in it.

    Raises:
        UserError: for anything missing, unexpected, misshapen or damaged.
    """
    directory = _model_in(directory)
    description, stored = pretrained.read_model_files(directory)
    tokenizer = load_tokenizer(directory)
    check_vocab_size(description.config, tokenizer, directory)
    task = read_task_record(
        directory, description.config.max_position_embeddings
    )
    model = models()[description.kind](
        description.config,
        dtype=dtype,
        **pretrained.constructor_arguments(description, stored),
    )
    fill_model(model, stored)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        max_seq_length=description.max_seq_length,
        task=task,
    )


def _model_in(directory: str) -> str:
    """Returns the model directory of a run directory, or the one given.

    Raises:
        UserError: for a directory of several runs (`bin.finetune --num_runs`).
    """
    inner = os.path.join(directory, "model")
    if files.isfile(os.path.join(inner, pretrained.CONFIG_FILE)):
        return inner
    one = os.path.join(directory, "run-1")
    if files.isdir(os.path.join(one, "model")):
        raise UserError(
            f"{directory} holds several runs; name one of them, such as {one}."
        )
    return directory


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


@dataclasses.dataclass(frozen=True)
class InitialWeights:
    """Weights to start a model from.

    Attributes:
        kind: what was found, for people.
        config: the architecture they fit.
        stored: the weights.
        directory: holds the tokenizer, if the source has one.
        description: what their config.json says; a Google checkpoint has none.
    """

    kind: str
    config: ModelConfig
    stored: StoredWeights
    directory: str | None
    description: ModelDescription | None = None

    @property
    def source(self) -> str:
        """The file they lie in."""
        return self.stored.source

    @property
    def tokenizer_place(self) -> str:
        """The directory to look for their tokenizer in."""
        return self.directory or os.path.dirname(self.source) or "."

    @property
    def fingerprint(self) -> str:
        """A digest of the weights, whatever the path is called."""
        return self.stored.fingerprint


def find_initial_weights(path: str) -> InitialWeights:
    """Returns the weights at `path`, saying what it found there.

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
    if not files.exists(path):
        raise UserError(f"{path} does not exist.")
    raise UserError(
        f"{path} is neither a model directory, a run directory with a "
        "finished model, nor a Google TF1 checkpoint."
    )


def initialize(model: AlbertModel, weights: InitialWeights) -> str:
    """Gives the model the initial weights and returns what happened, a line.

    The encoder must fit in full. A pretraining head that both sides have is
    taken too; the head of a task is always new, for its labels are those of
    another one.

    Raises:
        UserError: naming each weight of the encoder that is missing,
            unexpected or misshapen.
    """
    held = heads_in(weights.stored)
    new_heads = tuple(
        name
        for name, head in model.heads.items()
        if not head.is_pretrained or name not in held
    )
    filled = fill_model(
        model, weights.stored, new_heads=new_heads, drop_other_heads=True
    )
    line = f"Weights from the {weights.kind} {weights.source}: "
    line += str(len(filled.used))
    if filled.fresh:
        line += f"; new: {', '.join(filled.fresh)}"
    if filled.unused:
        line += f"; not needed: {', '.join(filled.unused)}"
    return line + "."
