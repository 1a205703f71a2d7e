"""Inputs of predictions: lines of text, tables and JSON lines.

Main entries: `read_lines` and `read_table`, which yield an `Input` each. What
is wrong with one is its `error`, and the others are read.
"""

import codecs
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.io.encoding import refuse_utf16
from albert_tf.prediction.forms import (
    CHOICES,
    PAIR,
    QUESTION,
    Form,
    Input,
)
from albert_tf.tasks.bad_rows import BadRows
from albert_tf.tasks.custom import columns_flag
from albert_tf.tasks.examples import Log, listed
from albert_tf.tasks.formats.columns import (
    EXTENSIONS,
    LABEL_COLUMN,
    LABELS_COLUMN,
    Reading,
    Record,
    Roles,
    Rows,
    infer_columns,
    json_record,
    open_rows,
)
from albert_tf.tasks.formats.race import question_with_option

_JSON_LINES = ".jsonl"
# Roles of columns that predictions do not read.
_UNREAD = ("label", "labels", "number")


# Names of columns by which the header of a table is recognised.
_NAMES = {n for f in (PAIR, QUESTION, CHOICES) for n in f.columns} | {
    *("label", "sentence", "sentence1", "sentence2")
}


def is_table(path: str) -> bool:
    """Returns whether a file has columns, by the ending of its name."""
    return os.path.splitext(path)[1] in EXTENSIONS


def decoded(
    lines: Iterable[bytes], source: str
) -> Iterator[tuple[str, str, UserError | None]]:
    """Yields the location and text of each line, and what is wrong with it.

    Raises UserError for text in UTF-16 or UTF-32.
    """
    for number, line in enumerate(lines, start=1):
        location = f"{source}, line {number}"
        if number == 1:
            refuse_utf16(source, line)
            line = line.removeprefix(codecs.BOM_UTF8)
        error = None
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as fault:
            text = line.decode("utf-8", "replace")
            error = UserError(
                f"{location}: byte {fault.start} is not UTF-8; convert it "
                "first."
            )
        yield location, text.rstrip("\n").rstrip("\r"), error


def read_lines(
    lines: Iterable[bytes], source: str, *, may_have_header: bool
) -> Callable[[Form], Iterator[Input]]:
    """Returns a function that yields the inputs, each line read when it is due.

    The first line is read at once. Raises UserError where there is none, where
    it is in UTF-16, and where it is the header of a table.
    """
    found = decoded(lines, source)
    first = next(found, None)
    if first is None:
        raise UserError(f"{source} is empty.")
    names = [n.strip(' "') for n in re.split(r"[\t,;]", first[1])]
    require(
        not (may_have_header and _NAMES.issuperset(names)),
        f"{source}, line 1: {listed(names, 12)} is the header of a table, and "
        f"no text; end the file's name with {' or '.join(EXTENSIONS)} to read "
        "its columns, or remove the line.",
    )

    def inputs(form: Form) -> Iterator[Input]:
        for location, text, error in itertools.chain([first], found):
            texts = tuple(text.split("\t", form.tabs)) if form.tabs else (text,)
            if error:
                yield Input(texts, error)
            else:
                yield form.checked(texts, location)

    return inputs


def read_table(
    path: str, columns: Sequence[str], quoting: str, log: Log
) -> Callable[[Form], Iterator[Input]]:
    """Returns a function that yields the inputs of a table or JSON lines.

    A table is read at once, lines of JSON when they are due. `columns` are
    `role=name`, and by default those of the form, or `label` and the others;
    `quoting` is a name of tables.QUOTING.
    """
    is_json = os.path.splitext(path)[1] == _JSON_LINES

    def roles_of(first: Record, form: Form) -> Roles:
        roles = (
            _roles(columns, form)
            if columns
            else _inferred(first, form, path, log)
        )
        if not is_json:
            # All rows have the same columns.
            _check_columns(first, roles)
        return roles

    def lines_of_json(form: Form) -> Iterator[Input]:
        with files.open(path) as file:
            lines = (n for n in decoded(file, path) if n[1].strip())
            yield from _inputs(lines, _json_record, form, roles_of)

    if is_json:
        require(files.size(path) > 0, f"{path} is empty.")
        return lines_of_json
    _, rows, record_of = open_rows(path, log, Reading(quoting))
    require(bool(rows), f"{path} has no rows below its header.")
    return lambda form: _inputs(rows, record_of, form, roles_of)


def _json_record(line: tuple[str, str, UserError | None]) -> Record:
    """Returns the record of a decoded line; raises UserError."""
    location, text, error = line
    if error:
        raise error
    return json_record((location, text))


def _inputs(
    rows: Iterable[Any],
    record_of: Callable[[Any], Record],
    form: Form,
    roles_of: Callable[[Record, Form], Roles],
) -> Iterator[Input]:
    """Yields the inputs of rows.

    `record_of` returns the record of a row, or raises UserError; `roles_of`
    the columns of all, by the first of them.
    """
    roles: Roles = {}
    for row in rows:
        try:
            record = record_of(row)
        except UserError as error:
            # A line of JSON, with its text, or a row of a table.
            yield Input(row[1:2] if isinstance(row, tuple) else (), error)
            continue
        roles = roles or roles_of(record, form)
        try:
            _check_columns(record, roles)
            texts = tuple(_texts_of(record, roles))
        except UserError as error:
            yield Input((), error)
        else:
            yield form.checked(texts, record.location)


def _roles(columns: Sequence[str], form: Form) -> Roles:
    """Returns the names in --columns by their roles; raises UserError."""
    roles: dict[str, list[str]] = {}
    for column in columns:
        role, _, name = column.partition("=")
        require(
            bool(name) and role.strip() in (*form.roles, *_UNREAD),
            f"--columns: expected role=column with the role "
            f"{' or '.join(form.roles)}, got {column!r}.",
        )
        roles.setdefault(role.strip(), []).append(name.strip())
    found = {role: roles[role] for role in form.roles if role in roles}
    missing = [r for r in form.roles if r not in (*roles, *form.optional)]
    number = len([*itertools.chain(*found.values())])
    require(
        not missing and (form.counts is None or number in form.counts),
        f"{columns_flag(columns)}: expected {form.expected}, as "
        f"{' and '.join(form.roles)}.",
    )
    return found


def _inferred(first: Record, form: Form, path: str, log: Log) -> Roles:
    """Returns the columns of the texts, by the first row."""
    names = first.values
    if form.roles != ("text",):
        return {
            role: [name]
            for role, name in zip(
                (form.roles[0], form.roles[-1]), form.columns, strict=True
            )
        }
    known = [name for name in form.columns if name in names]
    if form.counts is None or len(known) in form.counts:
        return {"text": known}
    label = next((n for n in (LABEL_COLUMN, LABELS_COLUMN) if n in names), "")
    require(
        bool(label),
        f"{path}: expected the columns {' and '.join(form.columns)}, got "
        f"{listed(names, 12)}; name them, as in --columns=text=sentence. Where "
        "each line is a text, the file's name should end with .txt.",
    )
    rows = Rows(path, [first], BadRows(), False, log)
    texts = infer_columns(rows, label=label)["text"]
    require(
        form.counts is None or len(texts) in form.counts,
        f"{path}: expected {form.expected}, got the columns "
        f"{listed(texts, 12)}; name them with --columns.",
    )
    return {"text": texts}


def _check_columns(row: Record, roles: Roles) -> None:
    """Raises UserError for a row that lacks a column."""
    for name in itertools.chain(*roles.values()):
        require(
            name in row.values,
            f"{row.location}: expected the column {name[:60]!r}, got "
            f"{listed(row.values, 12)}; name the columns with --columns.",
        )


def _texts_of(row: Record, roles: Roles) -> list[str]:
    """Returns the texts of a row, for choices the context first."""
    if "choice" not in roles:
        return [row.text(name) for name in itertools.chain(*roles.values())]
    choices: list[str] = []
    for name in roles["choice"]:
        found = row.texts(name)
        choices += [found] if isinstance(found, str) else found
    for question in map(row.text, roles.get("question", ())):
        choices = [question_with_option(question, c) for c in choices]
    return [*map(row.text, roles["context"]), *choices]
