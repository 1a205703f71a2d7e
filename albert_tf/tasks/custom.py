"""Users' own tasks, whose kind is inferred from --columns."""

import csv
import dataclasses
import functools
import io
import itertools
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from albert_tf.config import Log, UserError, require, silent
from albert_tf.tasks.base import Task
from albert_tf.tasks.formats.choice_rows import choice_examples
from albert_tf.tasks.formats.column_inference import infer_columns
from albert_tf.tasks.formats.columns import (
    multi_label_examples,
    text_examples,
)
from albert_tf.tasks.formats.conll import (
    CONLL,
    CONLLU,
    first_columns,
    read_conll,
)
from albert_tf.tasks.formats.entity_spans import (
    ENTITY_COLUMNS,
    TAGS_ADVICE,
    TEXT_COLUMN,
    entity_examples,
    infer_entity_columns,
)
from albert_tf.tasks.formats.record import Roles
from albert_tf.tasks.formats.rows import (
    AS_BY_DEFAULT,
    EXTENSIONS,
    JSON_EXTENSIONS,
    LABEL_COLUMN,
    LABELS_COLUMN,
    Reading,
    Rows,
    read_rows,
)
from albert_tf.tasks.formats.word_lists import word_list_examples
from albert_tf.tasks.kinds.base import Kind, Metric
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.multi_label import MultiLabelClassification
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.token_classification import (
    EntityClassification,
    TokenClassification,
)
from albert_tf.tasks.metrics import scalar
from albert_tf.tasks.split_files import SplitFiles, training_file
from albert_tf.tasks.splits import HeldOut

# Makes examples of rows, by roles; labelled or not.
ExamplesOf = Callable[[Rows, Roles, bool], Sequence[Any]]
_CONLL_EXTENSIONS = (CONLL, CONLLU, ".txt", ".tsv")


@dataclasses.dataclass(frozen=True)
class _Form:
    """A form of --columns.

    Attributes:
        roles: allowed numbers of columns by role.
        kind: of the task.
        read: takes roles, a Reading and what `SplitFiles.read_file` takes.
        metrics: of the task; the first selects the best checkpoint.
        extensions: of the files.
        names_labels: whether the columns of the role `label` are the labels.
    """

    roles: Mapping[str, range]
    kind: Kind
    read: Callable[[Roles, Reading, str, bool, Log], Sequence[Any]]
    metrics: Mapping[str, Metric]
    extensions: tuple[str, ...] = EXTENSIONS
    names_labels: bool = False


def _read_rows(
    examples_of: ExamplesOf,
    roles: Roles,
    reading: Reading,
    path: str,
    labelled: bool,
    log: Log,
) -> Sequence[Any]:
    return examples_of(read_rows(path, log, reading), roles, labelled)


def _read_words(
    roles: Roles, reading: Reading, path: str, labelled: bool, log: Log
) -> list:
    try:
        word, tag = int(roles["word"][0]), int(roles["tag"][0])
    except ValueError:
        raise UserError(
            f"--columns=word={roles['word'][0]},tag={roles['tag'][0]}: "
            "expected numbers of columns, from 0, or from -1 backwards. For "
            "columns with lists of words and tags, give --columns=words=...,"
            "tags=...."
        ) from None
    training = training_file(path, _CONLL_EXTENSIONS)
    if training and not labelled:
        # Numbered as in the training file: where a file lacks the tags, its
        # last column is another one.
        width = len(first_columns(training))
        if len(first_columns(path)) != width:
            word, tag = (n + width if n < 0 else n for n in (word, tag))
    return read_conll(
        path,
        word,
        tag,
        tagged=labelled,
        skip_bad_rows=reading.skip_bad_rows,
        log=log,
    )


_CLASSIFICATION_METRICS = {
    "accuracy": scalar.accuracy,
    "macro_f1": scalar.macro_f1,
}

_ONE, _TEXTS, _SEVERAL = range(1, 2), range(1, 3), range(2, 10_000)
_CHOICE = {"context": _ONE, "question": range(2), "choice": range(1, 100)}

_FORMS = (
    _Form(
        {"text": _TEXTS, "label": _ONE},
        Classification(),
        functools.partial(_read_rows, text_examples),
        _CLASSIFICATION_METRICS,
    ),
    _Form(
        {"text": _TEXTS, "labels": _ONE},
        MultiLabelClassification(),
        functools.partial(_read_rows, multi_label_examples),
        {},
    ),
    _Form(
        {"text": _TEXTS, "label": _SEVERAL},
        MultiLabelClassification(),
        functools.partial(_read_rows, multi_label_examples),
        {},
        names_labels=True,
    ),
    _Form(
        {"text": _TEXTS, "number": _ONE},
        Regression(),
        functools.partial(_read_rows, text_examples),
        {"pearson": scalar.pearson, "spearman": scalar.spearman},
    ),
    _Form(
        {**_CHOICE, "label": _ONE},
        MultipleChoice(),
        functools.partial(_read_rows, choice_examples),
        {"accuracy": scalar.accuracy},
    ),
    _Form(
        {"text": _ONE, "entities": _ONE},
        EntityClassification(),
        functools.partial(_read_rows, entity_examples),
        {},
        JSON_EXTENSIONS,
    ),
    _Form(
        {"words": _ONE, "tags": _ONE},
        TokenClassification(),
        functools.partial(_read_rows, word_list_examples),
        {},
    ),
    _Form(
        {"word": _ONE, "tag": _ONE},
        TokenClassification(),
        _read_words,
        {},
        _CONLL_EXTENSIONS,
    ),
)
_ALLOWED = (
    "allowed are "
    + "; ".join(
        f"{' and '.join(form.roles)} ({form.kind.name})"
        for form in _FORMS
        if not form.names_labels
    )
    + "; text once or twice, a question or none; label several times for "
    "columns of 0 and 1 that are named like their labels"
)


def columns_flag(columns: Sequence[str]) -> str:
    """Returns --columns as a shell takes it; the flag's value is CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(columns)
    return f"--columns={shlex.quote(line.getvalue())}"


def custom_task(
    columns: Sequence[str], reading: Reading = AS_BY_DEFAULT
) -> Task:
    """Returns the task of files whose columns are named.

    Each of `columns` is `role=column`; for example `text=premise`,
    `text=hypothesis`, `label=verdict`. Raises UserError for roles that make
    no task.
    """
    roles: dict[str, list[str]] = {}
    for column in columns:
        role, _, name = column.partition("=")
        require(
            bool(name),
            f"--columns: expected role=column, got {column!r}; {_ALLOWED}. A "
            "name with a comma is quoted with its role: "
            f"{columns_flag(['text=a, b', 'label=c'])}.",
        )
        name = name.strip()
        require(
            name not in itertools.chain(*roles.values()),
            f"{columns_flag(columns)} names a column twice.",
        )
        roles.setdefault(role.strip(), []).append(name)
    for form in _FORMS:
        if roles.keys() <= form.roles.keys() and all(
            len(roles.get(role, ())) in count
            for role, count in form.roles.items()
        ):
            read_file = functools.partial(form.read, roles, reading)
            reader = SplitFiles(read_file, form.extensions)
            return Task(
                name="custom",
                kind=form.kind,
                reader=HeldOut(reader, reading.split, form.kind.labelled),
                metrics=form.metrics,
                labels=tuple(roles["label"]) if form.names_labels else (),
                columns=lambda data_dir: columns,
                label_separator=reading.label_separator
                if "labels" in roles
                else "",
            )
    raise UserError(f"{columns_flag(columns)} makes no task: {_ALLOWED}.")


def _read_inferred(
    examples_of: ExamplesOf,
    label: str,
    reading: Reading,
    path: str,
    labelled: bool,
    log: Log,
) -> Sequence[Any]:
    """Returns the examples of a file, its columns those of the training file.

    Otherwise a test file with more columns could be read as pairs. `label` is
    the name of the column of labels.
    """
    rows = read_rows(path, log, reading)
    flags = f"--task=custom --columns=text=...,{label}=..."
    training = training_file(path, EXTENSIONS)
    if training in ("", path):
        roles = infer_columns(rows, labelled=labelled, label=label, flags=flags)
    else:
        # Messages, and lists of bad rows, belong to its own reading.
        of_training = read_rows(training, silent, reading)
        roles = infer_columns(of_training, label=label, flags=flags)
    return examples_of(rows, roles, labelled)


def _inferred_task(
    name: str,
    kind: Kind,
    examples_of: ExamplesOf,
    label: str,
    reading: Reading,
    metrics: Mapping[str, Metric] | None = None,
) -> Task:
    """Returns a task of files whose column of labels is called `label`."""
    read_file = functools.partial(_read_inferred, examples_of, label, reading)
    reader = SplitFiles(read_file)

    def columns(data_dir: str) -> list[str]:
        path = reader.path(data_dir, "train")
        rows = read_rows(path, silent, reading)
        roles = infer_columns(rows, label=label)
        return [f"{role}={n}" for role, names in roles.items() for n in names]

    return Task(
        name=name,
        kind=kind,
        columns=columns,
        reader=HeldOut(reader, reading.split, kind.labelled),
        metrics=metrics or {},
    )


def classification_task(reading: Reading = AS_BY_DEFAULT) -> Task:
    """Returns the task of files with `label` and one or two other columns."""
    return _inferred_task(
        "classification",
        Classification(),
        text_examples,
        LABEL_COLUMN,
        reading,
        _CLASSIFICATION_METRICS,
    )


def multi_label_task(reading: Reading = AS_BY_DEFAULT) -> Task:
    """Returns the task of files with `labels` and one or two other columns."""
    task = _inferred_task(
        "multilabel",
        MultiLabelClassification(),
        multi_label_examples,
        LABELS_COLUMN,
        reading,
    )
    return dataclasses.replace(task, label_separator=reading.label_separator)


def entity_task(reading: Reading = AS_BY_DEFAULT) -> Task:
    """Returns the task of JSON lines with `text` and a list of entities."""

    def read_file(path: str, labelled: bool, log: Log) -> Sequence[Any]:
        rows = read_rows(path, log, reading)
        has_entities = labelled or not set(ENTITY_COLUMNS).isdisjoint(
            rows.columns
        )
        roles = (
            infer_entity_columns(rows)
            if has_entities
            else {"text": [TEXT_COLUMN], "entities": ENTITY_COLUMNS[:1]}
        )
        return entity_examples(rows, roles, labelled)

    return Task(
        name="entities",
        kind=EntityClassification(),
        reader=HeldOut(
            SplitFiles(read_file, JSON_EXTENSIONS, advice=f" {TAGS_ADVICE}"),
            reading.split,
            EntityClassification.labelled,
        ),
    )


CLASSIFICATION = classification_task()
MULTI_LABEL = multi_label_task()
ENTITIES = entity_task()
# Tasks of files whose columns have known names, of a Reading.
OWN_TASKS: dict[str, Callable[[Reading], Task]] = {
    CLASSIFICATION.name: classification_task,
    MULTI_LABEL.name: multi_label_task,
    ENTITIES.name: entity_task,
}
