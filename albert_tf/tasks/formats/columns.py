"""Your own files: tables and JSON lines, by the names of their columns."""

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from albert_tf.config import UserError, shown
from albert_tf.io import files
from albert_tf.tasks.examples import ChoiceExample, Example
from albert_tf.tasks.formats.json_values import (
    of_kind,
    read_json_lines,
    shown_json,
)
from albert_tf.tasks.formats.race import LETTERS, question_with_option
from albert_tf.tasks.formats.tables import read_quoted_table

LABEL_COLUMN = "label"

# What parts the fields of a table.
_DELIMITERS = {".tsv": "\t", ".csv": ","}
_JSON_LINES = ".jsonl"
EXTENSIONS = (*_DELIMITERS, _JSON_LINES)
_ADVICE = (
    "a task of your own needs train.tsv and dev.tsv (or .csv, or .jsonl) in "
    "its data directory; the first line of a table names its columns, and a "
    "line of JSON is an object."
)
# The index of a data frame, as pandas writes it and as it reads that again.
_UNNAMED = re.compile(r"\s*|Unnamed: [0-9]+")


@dataclasses.dataclass(frozen=True)
class Record:
    """A row or line: what stands in each column.

    Attributes:
        values: texts of a table, values of JSON, numbers as they are written,
            by column; those of columns that nobody reads are not checked.
        location: file and line, for messages.
    """

    values: Mapping[str, Any]
    location: str

    def value(self, name: str) -> str | tuple[str, ...]:
        """Returns the text of a column, or its list of texts.

        Raises:
            UserError: for JSON that is neither, nor a number or truth value.
        """
        found = self.values[name]
        if isinstance(found, bool):
            return shown_json(found)
        if isinstance(found, list) and all(isinstance(v, str) for v in found):
            return tuple(found)
        if not isinstance(found, str):
            raise UserError(
                f"{self.location}: {shown(name)} is {shown_json(found)}; it "
                "must be a string, a number, true, false or a list of strings."
            )
        return found


@dataclasses.dataclass(frozen=True)
class Rows:
    """A file's lines.

    Attributes:
        names: of the columns; of JSON lines those of the first one.
        location: where these stand, for messages.
        records: one at least.
    """

    names: list[str]
    location: str
    records: list[Record]


def read_rows(path: str, log: Callable[[str], None]) -> Rows:
    """Returns the lines of a file, and the names of its columns.

    Args:
        path: of a table with a header (`.tsv`, `.csv`; `read_quoted_table`)
            or of JSON lines (`.jsonl`: an object in each line).
        log: takes a line on how a table's quotes are read.

    Raises:
        UserError: naming file and line, for a file of another kind, one that
            is missing, empty, not UTF-8 or without lines, two columns of one
            name, and a line with another number of fields.
    """
    extension = os.path.splitext(path)[1]
    if extension in _DELIMITERS:
        return _read_table(path, _DELIMITERS[extension], log)
    if extension != _JSON_LINES:
        raise UserError(f"{path} ends with none of {', '.join(EXTENSIONS)}.")
    records = [
        Record(of_kind(value, dict, f"{place}: it"), place)
        # Numbers stay as they are written.
        for place, value in read_json_lines(path, _ADVICE, number=str)
    ]
    if not records:
        raise UserError(f"{path} has no examples.")
    return Rows(list(records[0].values), records[0].location, records)


def _read_table(path: str, delimiter: str, log: Callable[[str], None]) -> Rows:
    header, *rows = read_quoted_table(path, _ADVICE, delimiter, log)
    names = header.fields
    named = [name for name in names if not _UNNAMED.fullmatch(name)]
    if len(set(named)) < len(named):
        raise UserError(
            f"{header.location}: the columns are {_listed(names)}; each needs "
            "a name of its own."
        )
    if not rows:
        raise UserError(f"{path} has a header but no examples.")
    records = [
        Record(dict(zip(names, row.fields, strict=True)), row.location)
        for row in rows
    ]
    return Rows(names, header.location, records)


def find_split(
    data_dir: str,
    split: str,
    extensions: Sequence[str] = EXTENSIONS,
) -> str:
    """Returns the path of the one file of a split.

    Args:
        data_dir: where it lies.
        split: its name without the ending.
        extensions: that it may end with.

    Raises:
        UserError: when there is none, or more than one.
    """
    names = [split + extension for extension in extensions]
    paths = [os.path.join(data_dir, name) for name in names]
    found = [path for path in paths if files.isfile(path)]
    if not found:
        raise UserError(
            f"{data_dir} has no {' or '.join(names)}, which the task needs."
        )
    if len(found) > 1:
        raise UserError(
            f"{' and '.join(found)} are both there; keep the one to be read."
        )
    return found[0]


def text_examples(
    rows: Rows, columns: Sequence[str], *, labelled: bool = True
) -> list[Example]:
    """Returns the examples of a file: a text or a pair, and a label.

    Args:
        rows: of the file.
        columns: one or two of texts, then that of the label.
        labelled: whether the file must have the label's column.

    Raises:
        UserError: for columns that are not there or hold no texts, and an
            empty label.
    """
    *texts, label = columns
    has_label = _has_label(rows, texts, label, labelled)
    return [
        Example(
            tuple(_text(record, name) for name in texts),
            _label(record, label) if has_label else None,
            record.location,
        )
        for record in rows.records
    ]


def own_columns(
    rows: Rows, log: Callable[[str], None], *, labelled: bool = True
) -> list[str]:
    """Returns the columns of a file: one or two of texts, then `label`.

    Args:
        rows: of the file.
        log: takes a line on columns without a name, which are left out, and
            on which make a pair.
        labelled: whether the file must have the label's column.

    Raises:
        UserError: for other columns than these, and lines of JSON that differ
            in theirs.
    """
    unnamed = [name for name in rows.names if _UNNAMED.fullmatch(name)]
    texts = [n for n in rows.names if n != LABEL_COLUMN and n not in unnamed]
    if labelled and LABEL_COLUMN not in rows.names:
        raise UserError(
            f"{rows.location}: the columns are {_listed(rows.names)}; one must "
            f"be called {LABEL_COLUMN!r}, or say which are meant with "
            "--columns."
        )
    if len(texts) not in (1, 2):
        raise UserError(
            f"{rows.location}: the columns are {_listed(rows.names)}; beside "
            f"{LABEL_COLUMN!r} there must be one or two with texts, or say "
            "which are meant with --columns."
        )
    for record in rows.records:
        # Or the second text of some lines would be passed over in silence.
        if record.values.keys() != set(rows.names):
            raise UserError(
                f"{record.location}: the columns are {_listed(record.values)}, "
                f"and those of the first line {_listed(rows.names)}; say "
                "which are meant with --columns."
            )
    if unnamed:
        log(
            f"{rows.location}: {', '.join(map(repr, unnamed))} is no column's "
            "name but that of an index, and not read."
        )
    if len(texts) == 2:
        log(
            f"{rows.location}: {_listed(texts)} are read as pairs; --columns "
            "names others."
        )
    return [*texts, LABEL_COLUMN]


def choice_examples(
    rows: Rows,
    context: str,
    of_choices: Sequence[str],
    label: str,
    *,
    question: str | None = None,
    labelled: bool = True,
) -> list[ChoiceExample]:
    """Returns the examples of a file: a context, choices, the right one.

    The label is the name of a choice's column, or else the number of the
    choice from 0, or its letter from A. Ids are the numbers of the examples
    from 0.

    Args:
        rows: of the file.
        context: its column.
        of_choices: theirs; what stands there is a text or a list of texts.
        label: its column.
        question: its column; every choice is then that with it, as in RACE.
        labelled: whether the file must have the label's column.

    Raises:
        UserError: for columns that are not there or hold no texts, a label
            that is no choice, fewer than two choices, and lines with more or
            fewer choices than the first.
    """
    texts = [context, *of_choices, *([question] if question else [])]
    has_label = _has_label(rows, texts, label, labelled)
    examples: list[ChoiceExample] = []
    for number, record in enumerate(rows.records):
        choices = _choices(record, of_choices)
        if examples and len(choices) != len(examples[0].choices):
            raise UserError(
                f"{record.location}: {len(choices)} choices, where the first "
                f"example has {len(examples[0].choices)}; all need as many."
            )
        right = None
        if has_label:
            right = _choice_number(record, label, of_choices, len(choices))
        if question:
            asked = _text(record, question)
            choices = [question_with_option(asked, c) for c in choices]
        examples.append(
            ChoiceExample(
                _text(record, context),
                tuple(choices),
                right,
                record.location,
                str(number),
            )
        )
    return examples


def _choices(record: Record, columns: Sequence[str]) -> list[str]:
    choices: list[str] = []
    for name in columns:
        value = record.value(name)
        choices += [value] if isinstance(value, str) else value
    if len(choices) < 2:
        raise UserError(
            f"{record.location}: {_listed(columns)} has {len(choices)} "
            "choices; two or more are needed, as a list in JSON lines or each "
            "in a column that --columns names."
        )
    return choices


def _choice_number(
    record: Record, column: str, names: Sequence[str], number: int
) -> int:
    """Returns the number of the right choice."""
    label = _label(record, column)
    one_each = len(names) == number
    if one_each and label in names:
        return names.index(label)
    letters = list(LETTERS[:number])
    if label in letters:
        return letters.index(label)
    allowed = [str(choice) for choice in range(number)]
    if label not in allowed:
        also = f", or one of {_listed(names)}" if one_each else ""
        raise UserError(
            f"{record.location}: the label is {shown(label)}; it must be a "
            f"number from 0 to {number - 1}, a letter from A to {letters[-1]}"
            f"{also}."
        )
    return int(label)


def _has_label(
    rows: Rows, texts: Sequence[str], label: str, labelled: bool
) -> bool:
    """Returns whether a file has labels.

    Raises:
        UserError: when it lacks a column that it needs.
    """
    has_label = labelled or label in rows.names
    needed = [*texts, label] if has_label else list(texts)
    if len({*texts, label}) < len(texts) + 1:
        raise UserError(
            f"--columns={','.join([*texts, label])} names a column twice."
        )
    places = [(rows.location, rows.names)]
    places += [
        (record.location, list(record.values)) for record in rows.records
    ]
    for place, names in places:
        for name in needed:
            if name not in names:
                raise UserError(
                    f"{place}: there is no column {name[:60]!r}; the columns "
                    f"are {_listed(names)}. Say which are meant with "
                    "--columns."
                )
    return has_label


def _text(record: Record, name: str) -> str:
    return of_kind(record.value(name), str, f"{record.location}: {name}")


def _label(record: Record, name: str) -> str:
    label = _text(record, name).strip()
    if not label:
        raise UserError(f"{record.location}: the label is empty.")
    return label


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(name[:60] for name in names)
