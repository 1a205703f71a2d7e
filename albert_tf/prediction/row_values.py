"""The values of a table's rows as they were read, whatever its form."""

import base64
import datetime
import decimal
import math
from collections.abc import Iterable
from typing import Any

from albert_tf.prediction.forms import Input
from albert_tf.prediction.outputs import cell_of
from albert_tf.tasks.formats.arrow import ArrowRow, text_of
from albert_tf.tasks.formats.class_folders import TextFile
from albert_tf.tasks.formats.json_rows import json_record
from albert_tf.tasks.formats.json_values import json_text
from albert_tf.tasks.formats.rows import FILE_COLUMN, LABEL_COLUMN
from albert_tf.tasks.formats.tables import Row


def values_of(item: Input, columns: Iterable[str]) -> dict[str, Any]:
    """Returns the values of a row by the table's columns, as JSON has them.

    Numbers of JSON lines are Numbers; what of Arrow JSON has not is a text.
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
    """Returns a value of Arrow as JSON can hold it.

    Times are in ISO 8601, bytes that are no text in Base64; NaN is null, as it
    is for pandas, and what else is not finite `inf`.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(v) for key, v in value.items()}
    if isinstance(value, bytes):
        text = text_of(value)
        return base64.b64encode(value).decode() if text is value else text
    if hasattr(value, "isoformat"):
        # Also of durations, where pandas is there.
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        seconds = decimal.Decimal(value // datetime.timedelta(microseconds=1))
        return f"PT{seconds.scaleb(-6):f}S"
    return str(value)


def cell_text(value: Any, separator: str = "") -> str:
    """Returns a value as a cell of a table; lists as JSON, or see `cell_of`."""
    if value is None:
        return ""
    value = cell_of(value, separator)
    return str(value) if isinstance(value, str) else json_text(value)
