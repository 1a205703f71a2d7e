"""Your own tasks: which columns of your files are what says the kind."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.tasks.base import Task
from albert_tf.tasks.formats.columns import (
    EXTENSIONS,
    choice_examples,
    find_split,
    own_columns,
    read_rows,
    text_examples,
)
from albert_tf.tasks.formats.conll import count_columns, read_conll
from albert_tf.tasks.kinds.base import Kind, Metric
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.token_classification import TokenClassification
from albert_tf.tasks.metrics import scalar

_SENTENCES = (".conll", ".txt", ".tsv")
# Column names by their roles.
_Columns = Mapping[str, list[str]]
_Log = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class OwnFiles:
    """Files train, dev and test of a directory; test need not have labels.

    Attributes:
        read_file: (path, whether labels are needed, what takes a line for
            people) -> examples.
        extensions: that a file may end with.
    """

    read_file: Callable[[str, bool, _Log], Sequence[Any]]
    extensions: tuple[str, ...] = EXTENSIONS
    splits: tuple[str, ...] = ("train", "dev", "test")

    def read(self, data_dir: str, split: str, log: _Log) -> Sequence[Any]:
        """Returns the examples of a split.

        Raises:
            UserError: naming file and line.
        """
        path = find_split(data_dir, split, self.extensions)
        return self.read_file(path, split != "test", log)


@dataclasses.dataclass(frozen=True)
class _Form:
    """What columns may be: a row of _FORMS.

    Attributes:
        texts: role -> how many columns may have it, in their order.
        answer: the role of the column that is learned.
        kind: of the task.
        read: (column names by role, path, whether labels are needed, what
            takes a line for people) -> examples.
        metrics: of the task; the first chooses the best model.
    """

    texts: Mapping[str, range]
    answer: str
    kind: Kind
    read: Callable[[_Columns, str, bool, _Log], Sequence[Any]]
    metrics: Mapping[str, Metric]
    extensions: tuple[str, ...] = EXTENSIONS


def _read_texts(
    found: _Columns, path: str, labelled: bool, log: _Log
) -> Sequence[Any]:
    (answer,) = found.get("label") or found["number"]
    columns = [*found["text"], answer]
    return text_examples(read_rows(path, log), columns, labelled=labelled)


def _read_choices(
    found: _Columns, path: str, labelled: bool, log: _Log
) -> Sequence[Any]:
    return choice_examples(
        read_rows(path, log),
        found["context"][0],
        found["choice"],
        found["label"][0],
        question=found.get("question", [None])[0],
        labelled=labelled,
    )


def _read_words(
    found: _Columns, path: str, labelled: bool, log: _Log
) -> Sequence[Any]:
    word, tag = (_column_number(found[role][0]) for role in ("word", "tag"))
    if word == tag:
        raise UserError(
            f"--columns: word={word} and tag={tag} are one column; tags stand "
            "in another."
        )
    if not labelled and min(word, tag) < 0:
        word, tag = _as_in_training(word, tag, path)
    return read_conll(path, word, tag, tagged=labelled)


def _as_in_training(word: int, tag: int, path: str) -> tuple[int, int]:
    """Returns a test file's columns, counted as those of the training file.

    A file without tags has another last column, which none must take for tags.
    """
    training = _training_file(path, _SENTENCES)
    if not training:
        raise UserError(
            f"{path}: no training file beside it tells how many columns there "
            f"are with tags; count from 0 instead of word={word} and tag={tag} "
            "in --columns."
        )
    width = count_columns(training)
    if width < -min(word, tag):
        raise UserError(
            f"{training} has {width} columns, and --columns says word={word} "
            f"and tag={tag}."
        )
    if count_columns(path) == width:
        return word, tag
    return tuple(n + width if n < 0 else n for n in (word, tag))


def _column_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(
            f"--columns: {text!r} is no number; columns of words and tags are "
            "counted from 0, or from -1 backwards."
        ) from None


_CLASSES = {"accuracy": scalar.accuracy, "macro_f1": scalar.macro_f1}
_NUMBERS = {"pearson": scalar.pearson, "spearman": scalar.spearman}

_FORMS = (
    _Form(
        {"text": range(1, 3)}, "label", Classification(), _read_texts, _CLASSES
    ),
    _Form({"text": range(1, 3)}, "number", Regression(), _read_texts, _NUMBERS),
    _Form(
        {"context": range(1, 2), "question": range(2), "choice": range(1, 100)},
        "label",
        MultipleChoice(),
        _read_choices,
        {"accuracy": scalar.accuracy},
    ),
    _Form(
        {"word": range(1, 2)},
        "tag",
        TokenClassification(),
        _read_words,
        {},
        _SENTENCES,
    ),
)


def custom_task(columns: Sequence[str]) -> Task:
    """Returns the task of files whose columns are named.

    Args:
        columns: each `role=column`; for example `text=premise`,
            `text=hypothesis`, `label=verdict`.

    Raises:
        UserError: for roles that make no task.
    """
    found: dict[str, list[str]] = {}
    for column in columns:
        role, equals, name = column.partition("=")
        if not equals or not name:
            raise UserError(
                f"--columns: {column!r} is not of the form role=column; "
                f"{_forms()}."
            )
        found.setdefault(role.strip(), []).append(name.strip())
    for form in _FORMS:
        numbers = {**form.texts, form.answer: range(1, 2)}
        if found.keys() <= numbers.keys() and all(
            len(found.get(role, ())) in number
            for role, number in numbers.items()
        ):
            return _task(form, found)
    raise UserError(f"--columns={','.join(columns)} makes no task: {_forms()}.")


def _forms() -> str:
    listed = (
        f"{' and '.join(form.texts)} with {form.answer} ({form.kind.name})"
        for form in _FORMS
    )
    return (
        f"there can be {'; '.join(listed)}; text once or twice, a question or "
        "none"
    )


def _task(form: _Form, found: Mapping[str, list[str]]) -> Task:
    return Task(
        name="custom",
        kind=form.kind,
        reader=OwnFiles(
            functools.partial(form.read, found),
            form.extensions,
        ),
        metrics=form.metrics,
    )


def _training_file(path: str, extensions: Sequence[str]) -> str:
    """Returns the training file beside a file; empty where there is none."""
    directory = os.path.dirname(path)
    names = (os.path.join(directory, f"train{e}") for e in extensions)
    if any(map(files.isfile, names)):
        return find_split(directory, "train", extensions)
    return ""


def _read_own_texts(path: str, labelled: bool, log: _Log) -> Sequence[Any]:
    """Returns the examples of a file, its columns those of the training file.

    Or a test file with other columns would be taken for pairs.
    """
    rows = read_rows(path, log)
    training = _training_file(path, EXTENSIONS)
    if training in ("", path):
        columns = own_columns(rows, log, labelled=labelled)
    else:
        # Remarks on that file are reported when it is read itself.
        columns = own_columns(read_rows(training, _nothing), _nothing)
    return text_examples(rows, columns, labelled=labelled)


def _nothing(line: str) -> None:
    return


# Without --columns: `label`, and one or two others.
CLASSIFICATION = Task(
    name="classification",
    kind=Classification(),
    reader=OwnFiles(_read_own_texts),
    metrics=_CLASSES,
)
