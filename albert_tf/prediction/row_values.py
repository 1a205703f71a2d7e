"""The values of a table's rows as they were read, whatever its form."""

import json
import math
from collections.abc import Iterable
from typing import Any

from albert_tf.prediction.forms import Input
from albert_tf.prediction.inputs import Table
from albert_tf.prediction.json_inputs import json_columns
from albert_tf.prediction.outputs import cell_of
from albert_tf.tasks.formats.arrow import ArrowRow, text_of
from albert_tf.tasks.formats.class_folders import TextFile
from albert_tf.tasks.formats.rows import FILE_COLUMN, LABEL_COLUMN, json_record
from albert_tf.tasks.formats.tables import Row


def columns_of(table: Table) -> list[tuple[str, str]]:
    """Returns the name and type of each column of a table.

    The type is string, and int64, double or bool where all values in lines of
    JSON are such. The columns of lines on standard input are not known.
    """
    if table.opened.columns is not None:
        return [(name, "string") for name in table.opened.columns]
    return [] if table.path == "-" else [*json_columns(table.path).items()]


def values_of(item: Input, columns: Iterable[str]) -> dict[str, Any]:
    """Returns the values of a row by the table's columns, as JSON has them.

    Numbers of JSON lines are texts, as they are written.
    """
    row = item.row
    if isinstance(row, ArrowRow):
        return {name: _plain(value) for name, value in row.stored.items()}
    if isinstance(row, TextFile):
        text = {"text": item.texts[0]} if item.texts else {}
        label = {} if row.label is None else {LABEL_COLUMN: row.label}
        return {FILE_COLUMN: row.path, **text, **label}
    if isinstance(row, Row):
        # A bad row may have another number of fields.
        return dict(zip(columns, row.fields, strict=False))
    # A line of JSON, which is no object where there is no row.
    return dict(json_record(row[:2]).values) if row else {}


def _plain(value: Any) -> Any:
    """Returns a value of Arrow as JSON can hold it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return str(text_of(value))
    return str(value)


def cell_text(value: Any, separator: str = "") -> str:
    """Returns a value as a cell of a table; lists as JSON, or see `cell_of`."""
    if value is None:
        return ""
    value = cell_of(value, separator)
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False)
    )
