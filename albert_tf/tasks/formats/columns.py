"""Users' own files: tables and JSON lines, by the names of their columns."""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import UserError, require, shown
from albert_tf.tasks.examples import ChoiceExample, Example, Log, listed
from albert_tf.tasks.formats.json_values import (
    check,
    read_json_lines,
    shown_json,
)
from albert_tf.tasks.formats.race import LETTERS, question_with_option
from albert_tf.tasks.formats.tables import read_quoted_table

LABEL_COLUMN = "label"
# Names of columns by their roles.
Roles = Mapping[str, Sequence[str]]

_DELIMITERS = {".tsv": "\t", ".csv": ","}
_JSON_LINES = ".jsonl"
EXTENSIONS = (*_DELIMITERS, _JSON_LINES)
_ADVICE = (
    "the first line of a table names its columns, and a line of JSON is an "
    "object."
)
# The index of a data frame, as pandas writes it and as it reads that again.
_UNNAMED = re.compile(r"\s*|Unnamed: [0-9]+")


@dataclasses.dataclass(frozen=True)
class Record:
    """The columns of a row or line, and its file and line.

    `values` are texts of a table, or values of JSON with numbers as they are
    written; they are checked when they are read.
    """

    values: Mapping[str, Any]
    location: str

    def texts(self, name: str) -> str | tuple[str, ...]:
        """Returns the text of a column, or its list of texts."""
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
        """Returns the text of a column, of which there is one."""
        found = self.texts(name)
        if not isinstance(found, str):
            raise UserError(
                f"{self.location}: expected a string as {name}, got "
                f"{shown_json(found)}."
            )
        return found

    def label(self, name: str) -> str:
        """Returns the label in a column, which may not be empty."""
        label = self.text(name).strip()
        if not label:
            raise UserError(f"{self.location}: the label is empty.")
        return label


def read_rows(path: str, log: Log) -> list[Record]:
    """Returns the rows of a file, one at least.

    A table with a header (`.tsv`, `.csv`; `read_quoted_table`, which logs how
    quotes are read) or JSON lines (`.jsonl`: an object in each line).

    Raises:
        UserError: for a file that cannot be read or has no rows, duplicate
            columns, and a line with another number of fields.
    """
    records = []
    delimiter = _DELIMITERS.get(os.path.splitext(path)[1])
    if delimiter:
        header, *rows = read_quoted_table(path, _ADVICE, delimiter, log)
        names = header.fields
        named = [name for name in names if not _UNNAMED.fullmatch(name)]
        require(
            len(set(named)) == len(named),
            f"{header.location}: expected distinct columns, got "
            f"{listed(names, 12)}.",
        )
        for row in rows:
            values = dict(zip(names, row.fields, strict=True))
            records.append(Record(values, row.location))
    else:
        for location, value in read_json_lines(path, _ADVICE, number=str):
            check(value, dict, location)
            records.append(Record(value, location))
    require(bool(records), f"{path} has no examples.")
    return records


def text_examples(
    rows: Sequence[Record], roles: Roles, labelled: bool
) -> list[Example]:
    """Returns the examples of a file: a text or a pair, and a label.

    `roles` are columns as `text` and as `label` or `number`; `labelled`
    requires the latter. Raises UserError for columns that are missing or hold
    no texts.
    """
    (label,) = roles.get("label") or roles["number"]
    has_label = _has_label(rows, roles, label, labelled)
    return [
        Example(
            tuple(record.text(name) for name in roles["text"]),
            record.label(label) if has_label else None,
            record.location,
        )
        for record in rows
    ]


def infer_columns(
    rows: Sequence[Record], log: Log, *, labelled: bool = True
) -> Roles:
    """Returns the columns of a file: one or two of texts, and `label`.

    Columns without a name, an index, are ignored. Logs a line on them, and on
    a pair. Raises UserError for other columns than these, and lines of JSON
    that differ in theirs.
    """
    first, names = rows[0].location, rows[0].values.keys()
    index = [name for name in names if _UNNAMED.fullmatch(name)]
    texts = [n for n in names if n != LABEL_COLUMN and n not in index]
    require(
        (LABEL_COLUMN in names or not labelled) and len(texts) in (1, 2),
        f"{first}: expected one or two columns of texts and {LABEL_COLUMN!r}, "
        f"got {listed(names, 12)}; name the columns with --columns.",
    )
    for record in rows:
        # Otherwise the second text of some lines would be ignored silently.
        if record.values.keys() != names:
            raise UserError(
                f"{record.location}: expected the columns of the first line, "
                f"{listed(names, 12)}, got {listed(record.values, 12)}; name "
                "the columns with --columns."
            )
    if index:
        log(f"{first}: {index} is the name of an index, and ignored.")
    if len(texts) == 2:
        log(
            f"{first}: {listed(texts, 12)} are read as pairs; --columns "
            "names others."
        )
    return {"text": texts, "label": [LABEL_COLUMN]}


def choice_examples(
    rows: Sequence[Record], roles: Roles, labelled: bool
) -> list[ChoiceExample]:
    """Returns the examples of a file: a context, choices, the right one.

    The label is the name of a choice's column, or else the number of the
    choice from 0, or its letter from A. Ids are the numbers of the examples
    from 0.

    `roles` are columns as `context`, as `choice` (each of a text or a list of
    texts), as `label`, which `labelled` requires, and perhaps as `question`,
    which is combined with every choice as in RACE.

    Raises:
        UserError: for columns that are missing or hold no texts, a label that
            is no choice, and fewer than two choices.
    """
    (context,), of_choices, (label,) = (
        roles[role] for role in ("context", "choice", "label")
    )
    has_label = _has_label(rows, roles, label, labelled)
    examples = []
    for number, record in enumerate(rows):
        choices: list[str] = []
        for name in of_choices:
            texts = record.texts(name)
            choices += [texts] if isinstance(texts, str) else texts
        if len(choices) < 2:
            raise UserError(
                f"{record.location}: expected two choices or more as "
                f"{listed(of_choices, 12)}, got {len(choices)}; give a list in "
                "JSON lines, or name several columns with --columns."
            )
        right = None
        if has_label:
            right = _choice_number(record, label, of_choices, len(choices))
        for question in map(record.text, roles.get("question", ())):
            choices = [question_with_option(question, c) for c in choices]
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


def _choice_number(
    record: Record, column: str, names: Sequence[str], number: int
) -> int:
    label = record.label(column)
    # A column may be called like the number of another choice.
    ids = {str(choice): choice for choice in range(number)}
    ids |= {letter: n for n, letter in enumerate(LETTERS[:number])}
    also = ""
    if len(names) == number:
        ids |= {name: n for n, name in enumerate(names)}
        also = f", or one of {listed(names, 12)}"
    if label not in ids:
        raise UserError(
            f"{record.location}: the label is {shown(label)}; expected a "
            f"number from 0 to {number - 1}, a letter from A{also}."
        )
    return ids[label]


def _has_label(
    rows: Sequence[Record], roles: Roles, label: str, labelled: bool
) -> bool:
    """Returns whether a file has labels; checks that no column is missing."""
    has_label = labelled or label in rows[0].values
    needed = {name for names in roles.values() for name in names}
    if not has_label:
        needed.remove(label)
    for record in rows:
        if missing := needed - record.values.keys():
            raise UserError(
                f"{record.location}: expected the column "
                f"{min(missing)[:60]!r}, got {listed(record.values, 12)}; name "
                "the columns with --columns."
            )
    return has_label
