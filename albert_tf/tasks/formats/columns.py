"""Users' own files: tables and JSON lines, by the names of their columns."""

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from albert_tf.config import UserError, require, shown
from albert_tf.io import files
from albert_tf.tasks.examples import ChoiceExample, Example
from albert_tf.tasks.formats.json_values import (
    check,
    read_json_lines,
    shown_json,
)
from albert_tf.tasks.formats.race import LETTERS, question_with_option
from albert_tf.tasks.formats.tables import read_quoted_table

LABEL_COLUMN = "label"

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
    """The columns of a row or line.

    Attributes:
        values: texts of a table, values of JSON with numbers as they are
            written; checked when they are read.
        location: file and line, for messages.
    """

    values: Mapping[str, Any]
    location: str

    def texts(self, name: str) -> str | tuple[str, ...]:
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
                f"{self.location}: expected a string, a number, true, false "
                f"or a list of strings as {shown(name)}, got "
                f"{shown_json(found)}."
            )
        return found

    def text(self, name: str) -> str:
        """Returns the text of a column.

        Raises:
            UserError: for JSON that is no text, as above, and for lists.
        """
        found = self.texts(name)
        if not isinstance(found, str):
            raise UserError(
                f"{self.location}: expected a string as {name}, got "
                f"{shown_json(list(found))}."
            )
        return found

    def label(self, name: str) -> str:
        """Returns the label in a column, which may not be empty."""
        label = self.text(name).strip()
        if not label:
            raise UserError(f"{self.location}: the label is empty.")
        return label


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a file.

    Attributes:
        names: of the columns; of JSON lines those of the first one.
        location: of these names, for messages.
        records: one at least.
    """

    names: list[str]
    location: str
    records: list[Record]


def read_rows(path: str, log: Callable[[str], None]) -> Rows:
    """Returns the rows of a file.

    Args:
        path: of a table with a header (`.tsv`, `.csv`; `read_quoted_table`)
            or of JSON lines (`.jsonl`: an object in each line).
        log: takes a line on how a table's quotes are read.

    Raises:
        UserError: for a file of another extension, one that cannot be read or
            has no rows; with its location, for duplicate columns and a line
            with another number of fields.
    """
    extension = os.path.splitext(path)[1]
    if extension in _DELIMITERS:
        header, *rows = read_quoted_table(
            path, _ADVICE, _DELIMITERS[extension], log
        )
        names, location = header.fields, header.location
        named = [name for name in names if not _UNNAMED.fullmatch(name)]
        require(
            len(set(named)) == len(named),
            f"{location}: expected distinct columns, got {_listed(names)}.",
        )
        records = [
            Record(dict(zip(names, row.fields, strict=True)), row.location)
            for row in rows
        ]
        require(bool(rows), f"{path} has a header but no examples.")
        return Rows(names, location, records)
    require(
        extension == _JSON_LINES,
        f"{path}: expected a file {', '.join(EXTENSIONS)}.",
    )
    records = []
    for location, value in read_json_lines(path, _ADVICE, number=str):
        check(value, dict, location)
        records.append(Record(value, location))
    require(bool(records), f"{path} has no examples.")
    return Rows(list(records[0].values), records[0].location, records)


def find_split(
    data_dir: str,
    split: str,
    extensions: Sequence[str] = EXTENSIONS,
) -> str:
    """Returns the path of the one file of a split.

    Raises:
        UserError: when there is none of these extensions, or more than one.
    """
    names = [split + extension for extension in extensions]
    paths = [os.path.join(data_dir, name) for name in names]
    found = [path for path in paths if files.isfile(path)]
    require(
        bool(found),
        f"{data_dir} has no {' or '.join(names)}, which the task needs.",
    )
    require(
        len(found) == 1,
        f"{' and '.join(found)} both exist; remove all but one.",
    )
    return found[0]


def text_examples(
    rows: Rows, columns: Sequence[str], *, labelled: bool = True
) -> list[Example]:
    """Returns the examples of a file: a text or a pair, and a label.

    Args:
        rows: of the file.
        columns: one or two of texts, then that of the label.
        labelled: require the label's column.

    Raises:
        UserError: for columns that are missing or hold no texts, and an
            empty label.
    """
    *texts, label = columns
    has_label = _has_label(rows, texts, label, labelled)
    return [
        Example(
            tuple(record.text(name) for name in texts),
            record.label(label) if has_label else None,
            record.location,
        )
        for record in rows.records
    ]


def infer_columns(
    rows: Rows, log: Callable[[str], None], *, labelled: bool = True
) -> list[str]:
    """Returns the columns of a file: one or two of texts, then `label`.

    Args:
        rows: of the file.
        log: takes a line on columns without a name, which are ignored, and
            on those read as a pair.
        labelled: require the column `label`.

    Raises:
        UserError: for other columns than these, and lines of JSON that differ
            in theirs.
    """
    unnamed = [name for name in rows.names if _UNNAMED.fullmatch(name)]
    texts = [n for n in rows.names if n != LABEL_COLUMN and n not in unnamed]
    is_known = LABEL_COLUMN in rows.names or not labelled
    require(
        is_known and len(texts) in (1, 2),
        f"{rows.location}: expected one or two columns of texts and "
        f"{LABEL_COLUMN!r}, got {_listed(rows.names)}; name the columns with "
        "--columns.",
    )
    names = set(rows.names)
    for record in rows.records:
        # Or the second text of some lines would be silently ignored.
        if record.values.keys() != names:
            raise UserError(
                f"{record.location}: expected the columns of the first line, "
                f"{_listed(rows.names)}, got {_listed(record.values)}; name "
                "the columns with --columns."
            )
    if unnamed:
        log(
            f"{rows.location}: {', '.join(map(repr, unnamed))} is the name of "
            "an index, and ignored."
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
        of_choices: theirs, each of a text or a list of texts.
        label: its column.
        question: its column; every choice is then combined with it, as in
            RACE.
        labelled: require the label's column.

    Raises:
        UserError: for columns that are missing or hold no texts, a label that
            is no choice, and fewer than two choices.
    """
    texts = [context, *of_choices, *([question] if question else [])]
    has_label = _has_label(rows, texts, label, labelled)
    examples = []
    for number, record in enumerate(rows.records):
        choices = _choices(record, of_choices)
        right = None
        if has_label:
            right = _choice_number(record, label, of_choices, len(choices))
        if question:
            asked = record.text(question)
            choices = [question_with_option(asked, c) for c in choices]
        examples.append(
            ChoiceExample(
                record.text(context),
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
        texts = record.texts(name)
        choices += [texts] if isinstance(texts, str) else texts
    if len(choices) < 2:
        raise UserError(
            f"{record.location}: expected two choices or more as "
            f"{_listed(columns)}, got {len(choices)}; give a list in JSON "
            "lines, or name several columns with --columns."
        )
    return choices


def _choice_number(
    record: Record, column: str, names: Sequence[str], number: int
) -> int:
    """Returns the number of the right choice."""
    label = record.label(column)
    # A column may be called like the number of another choice.
    ids = {str(choice): choice for choice in range(number)}
    ids |= {letter: n for n, letter in enumerate(LETTERS[:number])}
    if len(names) == number:
        ids |= {name: n for n, name in enumerate(names)}
    if label not in ids:
        also = f", or one of {_listed(names)}" if len(names) == number else ""
        raise UserError(
            f"{record.location}: the label is {shown(label)}; expected a "
            f"number from 0 to {number - 1}, a letter from A to "
            f"{LETTERS[:number][-1]}{also}."
        )
    return ids[label]


def _has_label(
    rows: Rows, texts: Sequence[str], label: str, labelled: bool
) -> bool:
    """Returns whether a file has labels.

    Raises:
        UserError: when it lacks a column that it needs.
    """
    columns = [*texts, label]
    require(
        len(set(columns)) == len(columns),
        f"--columns={','.join(columns)} names a column twice.",
    )
    has_label = labelled or label in rows.names
    needed = columns if has_label else texts
    for location, names in [
        (rows.location, rows.names),
        *((record.location, record.values) for record in rows.records),
    ]:
        for name in needed:
            if name not in names:
                raise UserError(
                    f"{location}: expected the column {name[:60]!r}, got "
                    f"{_listed(names)}; name the columns with --columns."
                )
    return has_label


def _listed(names: Iterable[str]) -> str:
    return ", ".join(name[:60] for name in names)
