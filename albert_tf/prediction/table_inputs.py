"""Tables, JSON lines and directories as inputs of predictions.

Main entry: `read_table`. A bad row has its error, and the others are read.
"""

import codecs
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence

from albert_tf.config import Log, UserError, require, silent
from albert_tf.io import files
from albert_tf.io.compression import open_plain
from albert_tf.prediction.forms import Form, Input
from albert_tf.prediction.input_columns import (
    check_columns,
    columns_of_texts,
    refuse_more_texts,
    texts_of,
    words_input,
)
from albert_tf.prediction.inputs import Inputs, Table
from albert_tf.prediction.json_inputs import json_columns, open_json
from albert_tf.tasks.formats.record import Record, Roles
from albert_tf.tasks.formats.rows import (
    EXTENSIONS,
    JSON_LINES,
    Opened,
    Reading,
    ending_of,
    has_columns,
    open_rows,
    open_texts,
)
from albert_tf.tasks.formats.tables import DELIMITERS
from albert_tf.tasks.formats.word_lists import words_of

# Ends of names of files with columns, by the values of --input_format.
INPUT_FORMATS = {e.removeprefix("."): ending_of(f"a{e}") for e in EXTENSIONS}


def table_ending(path: str, input_format: str = "auto") -> str | None:
    """Returns the ending that says how columns are read; None: lines.

    It is "" for a directory.
    """
    if input_format != "auto":
        return INPUT_FORMATS.get(input_format)
    if path != "-" and files.isdir(path):
        return ""
    ending = ending_of(path)
    return ending if ending in EXTENSIONS else None


def read_table(
    path: str,
    columns: Sequence[str],
    quoting: str,
    log: Log,
    *,
    ending: str | None = None,
    lines: Iterable[bytes] | None = None,
) -> Inputs:
    """Returns the inputs in a table, JSON lines or a directory.

    A file of rows is read once to check it or for its columns, and again row by
    row. `columns` are `role=name`; by default those of the model's task where
    any row has them, or those of the form, or `label` and the others, by most
    rows. `quoting` is a name of tables.QUOTING. `lines` are the content of
    what is no file; they are read once.
    """
    ending = ending_of(path) if ending is None else ending
    reading = Reading(quoting)
    num = None
    mark = False
    if lines is None and ending in (*DELIMITERS, JSON_LINES):
        require(
            not files.exists(path) or files.isfile(path),
            f"{path} is no regular file, and a table is read twice; give "
            f"--input=- with --input_format={ending.removeprefix('.')}.",
        )
    if lines is None and ending in DELIMITERS:
        checked = open_rows(path, log, reading, ending=ending)
        num = sum(1 for _ in checked.rows)
        log = silent
        with open_plain(path) as file:
            mark = file.peek(3).startswith(codecs.BOM_UTF8)
    if ending == JSON_LINES:
        opened = open_json(path, lines)
    elif lines is None and files.isdir(path) and not has_columns(path):
        # New texts have no classes.
        opened = open_texts(path, log)
    else:
        opened = open_rows(path, log, reading, ending=ending, lines=lines)

    own, usual = _columns(path, opened, lines)
    table = Table(path, ending, opened, quoting, mark, own, usual)
    read = functools.partial(_inputs, table, columns, log)
    return Inputs(read, num or opened.num_rows, table)


def _columns(
    path: str, opened: Opened, lines: Iterable[bytes] | None
) -> tuple[Sequence[tuple[str, str]], Sequence[str]]:
    """Returns `columns` and `usual` of a Table."""
    if opened.columns is not None:
        return [(name, "string") for name in opened.columns], opened.columns
    return json_columns(path) if lines is None else ([], [])


def _inputs(
    table: Table,
    columns: Sequence[str],
    log: Log,
    form: Form,
    of_model: Sequence[str] = (),
) -> Iterator[Input]:
    """Yields the inputs of rows.

    The columns of the model's task may be in any row, since JSON lines may
    leave out nulls, and others in most rows.
    """
    opened = table.opened
    names = {name.strip() for name, _ in table.columns}
    roles: Roles = {}
    for row in opened.rows:
        try:
            record = opened.record_of(row)
        except UserError as error:
            # A line of JSON that is no object has its text, and no row.
            is_line = opened.columns is None
            yield Input(row[1:2], error) if is_line else Input((), error, row)
            continue
        if not roles:
            first = record
            if table.usual:
                usual = map(str.strip, table.usual)
                values = {name: record.values.get(name) for name in usual}
                first = Record(values, record.location)
            roles = columns_of_texts(
                first, names, form, columns, of_model, table.path, log
            )
            if opened.columns is not None:
                # All rows have the same columns.
                check_columns(first, roles)
        try:
            if not columns:
                refuse_more_texts(record, roles, form)
            found = _input(record, roles, form)
        except UserError as error:
            yield Input((), error, row)
        else:
            yield dataclasses.replace(found, row=row)


def _input(record: Record, roles: Roles, form: Form) -> Input:
    """Returns the texts of a row; raises UserError for a bad one."""
    check_columns(record, roles)
    if "words" in roles:
        words = words_of(record, *roles["words"])
        return words_input(words, record.location, form)
    return form.checked(tuple(texts_of(record, roles)), record.location)
