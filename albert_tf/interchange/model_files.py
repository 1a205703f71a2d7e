"""The files of a model directory: task.json, and atomic replacement.

Main entries: `TaskRecord`, `read_task_record`, `replacing_directory`, and
`recover_directory` after a kill.
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from albert_tf.config import (
    FeatureConfig,
    from_dict,
    require,
    shown,
    to_dict,
)
from albert_tf.io import directories, files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.modeling.weights import pretrained, sentence_modules
from albert_tf.text import tokenizer, tokenizer_base

TASK_FILE = "task.json"
TOKENIZER_FILES = (
    *(kind.vocabulary_file for kind in tokenizer.KINDS),
    tokenizer_base.JSON_FILE,
    tokenizer_base.CONFIG_FILE,
    tokenizer_base.ADDED_FILE,
)
MODEL_FILES = (pretrained.CONFIG_FILE, pretrained.WEIGHTS_FILE)
# The files that `save_model_directory` writes, and of other libraries those
# that would change how a model in their place is read.
FILES = frozenset(
    (
        *TOKENIZER_FILES,
        *MODEL_FILES,
        *sentence_modules.FILES,
        TASK_FILE,
        sentence_modules.SETTINGS_FILE,
        "special_tokens_map.json",
    )
)
# Suffix of a directory while another is renamed to its name.
_OLD = ".old"


@dataclasses.dataclass(frozen=True)
class TaskRecord:
    """The task that a model was fine-tuned for.

    Attributes:
        task: its name.
        features: its settings of features and of predictions.
        pairs: whether its examples are pairs of texts.
        base_model: the model on the hub that fine-tuning began with, as
            `owner/name@commit`; empty for others.
        columns: of its training file, as `--columns` has them (`role=name`);
            none where these have no names.
        label_separator: stands between several labels in one text of it;
            empty for tasks without such texts.
    """

    task: str
    features: FeatureConfig
    pairs: bool = False
    base_model: str = ""
    columns: Sequence[str] = ()
    label_separator: str = ""

    def write(self, directory: str) -> None:
        """Writes the file into a model directory."""
        write_json(os.path.join(directory, TASK_FILE), to_dict(self))


# The types of the fields in JSON, with words for them.
_FIELDS: dict[str, tuple[Any, str]] = {
    "task": (str, "a string"),
    "features": (dict, "an object"),
    "pairs": (bool, "true or false"),
    "base_model": (str, "a string"),
    # A tuple is the default.
    "columns": ((list, tuple), "a list"),
    "label_separator": (str, "a string"),
}


def read_task_record(
    directory: str, max_position_embeddings: int
) -> TaskRecord | None:
    """Returns the record in a model directory, None where there is none.

    Raises:
        UserError: when the file is damaged, or its max_seq_length exceeds
            `max_position_embeddings`, that of the model.
    """
    path = os.path.join(directory, TASK_FILE)
    if not files.isfile(path):
        return None
    stored = read_json(path)
    values: dict[str, Any] = {}
    for name, (kind, expected) in _FIELDS.items():
        # Records of earlier versions lack what has a default.
        value = stored.get(name, getattr(TaskRecord, name, None))
        require(
            isinstance(value, kind),
            f"{path}: expected {name!r} to be {expected}, got {shown(value)}.",
        )
        values[name] = value
    config = from_dict(FeatureConfig, values["features"], path)
    require(
        config.max_seq_length <= max_position_embeddings,
        f"{path}: max_seq_length={config.max_seq_length} exceeds the model's "
        f"max_position_embeddings={max_position_embeddings}.",
    )
    columns = values["columns"]
    require(
        all(isinstance(column, str) for column in columns),
        f"{path}: expected strings as 'columns', got {shown(columns)}.",
    )
    values |= {"features": config, "columns": tuple(columns)}
    return TaskRecord(**values)


@contextlib.contextmanager
def replacing_directory(
    directory: str,
    last: str = pretrained.CONFIG_FILE,
    *,
    replaces: Collection[str] = FILES,
) -> Iterator[str]:
    """Yields a new directory that replaces `directory` when the body ends.

    When the body fails, `directory` is as it was. `last` is the file without
    which a directory in a bucket is incomplete; files of names that are not in
    `replaces` are kept. A link stays one, to the new directory. What a killed
    process has left is completed or removed first.

    Raises:
        UserError: when another process is writing to `directory`.
    """
    if files.is_remote(directory):
        with directories.local_directory(
            directory, last, replaces=replaces
        ) as temporary:
            yield temporary
        return
    directory = os.path.realpath(directory)
    with directories.new_directory(directory) as temporary:
        _complete(directory, replaces)
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
        _complete(directory, replaces)


def recover_directory(directory: str) -> None:
    """Completes a `replacing_directory` of a process that was killed.

    Only where no other process writes. The old directory is put back if it
    was already renamed.
    """
    if not files.is_remote(directory):
        directory = os.path.realpath(directory)
        directories.remove_unfinished(directory)
        _complete(directory, FILES)


def _complete(directory: str, replaces: Collection[str]) -> None:
    """Empties the old directories, or puts one back where there is no new."""
    parent, name = os.path.split(directory)
    for found in files.listdir(parent):
        is_old = found.endswith(_OLD) and directories.is_new_directory(
            found.removesuffix(_OLD), name
        )
        if not is_old:
            continue
        old = os.path.join(parent, found)
        if os.path.isdir(directory):
            _empty(old, directory, replaces)
        else:
            os.rename(old, directory)


def _empty(old: str, directory: str, replaces: Collection[str]) -> None:
    """Moves other files to the new directory and removes the replaced."""
    for name in os.listdir(old):
        path, target = os.path.join(old, name), os.path.join(directory, name)
        if name not in replaces:
            if not os.path.lexists(target):
                os.rename(path, target)
        elif os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)
    # A name that the new directory has too stays in the old one.
    if not os.listdir(old):
        os.rmdir(old)


def flush_files(directory: str) -> None:
    """Flushes every file of a directory to disk (fsync)."""
    for parent, _, names in os.walk(directory):
        for name in names:
            with open(os.path.join(parent, name), "rb") as file:
                os.fsync(file.fileno())
