"""Users' own tasks: --columns decides on the kind of task."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.tasks.base import Task
from albert_tf.tasks.formats.columns import (
    EXTENSIONS,
    choice_examples,
    find_split,
    infer_columns,
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

_CONLL_EXTENSIONS = (".conll", ".txt", ".tsv")
# Column names by their roles.
_Columns = Mapping[str, list[str]]
_Log = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class OwnFiles:
    """Files train, dev and test of a directory; test need not have labels.

    Attributes:
        read_file: (path, whether labels are required, log) -> examples.
        extensions: of the files.
    """

    read_file: Callable[[str, bool, _Log], Sequence[Any]]
    extensions: tuple[str, ...] = EXTENSIONS
    splits: tuple[str, ...] = ("train", "dev", "test")

    def read(self, data_dir: str, split: str, log: _Log) -> Sequence[Any]:
        """Returns the examples of a split.

        Raises:
            UserError: with the location of what cannot be read.
        """
        path = find_split(data_dir, split, self.extensions)
        return self.read_file(path, split != "test", log)


@dataclasses.dataclass(frozen=True)
class _Form:
    """A form of --columns: a row of _FORMS.

    Attributes:
        texts: allowed numbers of columns by role, in their order.
        answer: the role of the column to predict.
        kind: of the task.
        read: (column names by role, path, whether labels are required, log)
            -> examples.
        metrics: of the task; the first selects the best checkpoint.
        extensions: of the files.
    """

    texts: Mapping[str, range]
    answer: str
    kind: Kind
    read: Callable[[_Columns, str, bool, _Log], Sequence[Any]]
    metrics: Mapping[str, Metric]
    extensions: tuple[str, ...] = EXTENSIONS


def _read_texts(
    roles: _Columns, path: str, labelled: bool, log: _Log
) -> Sequence[Any]:
    (answer,) = roles.get("label") or roles["number"]
    columns = [*roles["text"], answer]
    return text_examples(read_rows(path, log), columns, labelled=labelled)


def _read_choices(
    roles: _Columns, path: str, labelled: bool, log: _Log
) -> Sequence[Any]:
    return choice_examples(
        read_rows(path, log),
        roles["context"][0],
        roles["choice"],
        roles["label"][0],
        question=roles.get("question", [None])[0],
        labelled=labelled,
    )


def _read_words(
    roles: _Columns, path: str, labelled: bool, log: _Log
) -> Sequence[Any]:
    try:
        word, tag = int(roles["word"][0]), int(roles["tag"][0])
    except ValueError:
        raise UserError(
            f"--columns=word={roles['word'][0]},tag={roles['tag'][0]}: "
            "expected numbers of columns, from 0, or from -1 backwards."
        ) from None
    require(
        word != tag,
        f"--columns: word={word} and tag={tag} are one column; expected two.",
    )
    if not labelled and min(word, tag) < 0:
        word, tag = _columns_of_training(word, tag, path)
    return read_conll(path, word, tag, tagged=labelled)


def _columns_of_training(word: int, tag: int, path: str) -> tuple[int, int]:
    """Returns a test file's columns, counted as those of the training file.

    The last column of a file without tags is another, and is no tag.
    """
    training = _training_file(path, _CONLL_EXTENSIONS)
    require(
        bool(training),
        f"{path}: there is no training file beside it to count its columns; "
        f"count from 0 instead of word={word} and tag={tag} in --columns.",
    )
    width = count_columns(training)
    require(
        width >= -min(word, tag),
        f"{training} has {width} columns; --columns has word={word} and "
        f"tag={tag}.",
    )
    if count_columns(path) == width:
        return word, tag
    word, tag = (n + width if n < 0 else n for n in (word, tag))
    return word, tag


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
        _CONLL_EXTENSIONS,
    ),
)
_ALLOWED = (
    "allowed are "
    + "; ".join(
        f"{' and '.join(form.texts)} with {form.answer} ({form.kind.name})"
        for form in _FORMS
    )
    + "; text once or twice, a question or none"
)


def custom_task(columns: Sequence[str]) -> Task:
    """Returns the task of files whose columns are named.

    Args:
        columns: each `role=column`; for example `text=premise`,
            `text=hypothesis`, `label=verdict`.

    Raises:
        UserError: for roles that make no task.
    """
    roles: dict[str, list[str]] = {}
    for column in columns:
        role, _, name = column.partition("=")
        require(
            bool(name),
            f"--columns: expected role=column, got {column!r}; {_ALLOWED}.",
        )
        roles.setdefault(role.strip(), []).append(name.strip())
    for form in _FORMS:
        counts = {**form.texts, form.answer: range(1, 2)}
        if roles.keys() <= counts.keys() and all(
            len(roles.get(role, ())) in count for role, count in counts.items()
        ):
            read_file = functools.partial(form.read, roles)
            return Task(
                name="custom",
                kind=form.kind,
                reader=OwnFiles(read_file, form.extensions),
                metrics=form.metrics,
            )
    raise UserError(f"--columns={','.join(columns)} makes no task: {_ALLOWED}.")


def _training_file(path: str, extensions: Sequence[str]) -> str:
    """Returns the training file beside a file, or ""."""
    directory = os.path.dirname(path)
    names = (os.path.join(directory, f"train{e}") for e in extensions)
    if any(map(files.isfile, names)):
        return find_split(directory, "train", extensions)
    return ""


def _read_inferred(path: str, labelled: bool, log: _Log) -> Sequence[Any]:
    """Returns the examples of a file, its columns those of the training file.

    Else a test file with other columns would be read as pairs.
    """
    rows = read_rows(path, log)
    training = _training_file(path, EXTENSIONS)
    if training in ("", path):
        columns = infer_columns(rows, log, labelled=labelled)
    else:
        # Its own lines are logged when it is read itself.
        columns = infer_columns(read_rows(training, _discard), _discard)
    return text_examples(rows, columns, labelled=labelled)


def _discard(line: str) -> None:
    return


# Without --columns: `label`, and one or two others.
CLASSIFICATION = Task(
    name="classification",
    kind=Classification(),
    reader=OwnFiles(_read_inferred),
    metrics=_CLASSES,
)
