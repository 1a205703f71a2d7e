"""Tables with the columns of predictions: the rows as they were, and these.

Main entry: `write_table`.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from albert_tf.config import Log, UserError, listed, require
from albert_tf.prediction.delimited_output import DelimitedWriter
from albert_tf.prediction.inputs import Table
from albert_tf.prediction.modes import Mode
from albert_tf.prediction.outputs import Rows
from albert_tf.prediction.parquet_output import write_parquet
from albert_tf.prediction.row_values import values_of
from albert_tf.tasks.formats.rows import JSON_LINES, PARQUET, ending_of
from albert_tf.tasks.formats.tables import DELIMITERS

# New columns by the names of fields that a table may have of its own.
_RENAMED = {
    "label": "prediction",
    "labels": "prediction",
    "entities": "predicted_entities",
}
# Name of the column with what prevents a prediction.
_ERROR = "error"


def write_table(
    file: IO[bytes],
    name: str,
    rows: Rows,
    mode: Mode,
    labels: Sequence[str],
    table: Table,
    log: Log,
) -> None:
    """Writes the rows of a table with their predictions.

    The form is that which `name` ends in, or else the table's. `labels` are
    those whose probabilities have columns. Where a name is taken, all that are
    added get a number; a line is logged.
    """
    ending = ending_of(name)
    if ending not in (*DELIMITERS, JSON_LINES, PARQUET):
        ending = table.ending or JSON_LINES
    require(
        table.path != "-"
        or table.opened.columns is not None
        or ending == JSON_LINES,
        f"--output={name}: the columns of JSON lines on standard input are "
        "known at their end; name a .jsonl.",
    )
    if ending == JSON_LINES:
        for line in json_rows(rows, mode, table, log):
            file.write(f"{line}\n".encode("utf-8", "backslashreplace"))
        return
    names = [name for name, _ in table.columns]
    columns = _Columns(mode, labels, {*names})
    columns.report(table.path, log)
    found = ((item, columns.cells(found)) for item, found in rows)
    if ending == PARQUET:
        write_parquet(file, table, table.columns, columns.types, found)
        return
    writer = DelimitedWriter(
        file, ending, table, names, columns.types, mode.separator
    )
    for item, cells in found:
        writer.write(item, cells)


def json_rows(rows: Rows, mode: Mode, table: Table, log: Log) -> Iterator[str]:
    """Yields a JSON object for each row of a table, with its prediction.

    An error is there where there is one.
    """
    names = [name for name, _ in table.columns]
    columns = _Columns(mode, None, {*names})
    columns.report(table.path, log)
    for item, prediction in rows:
        own = values_of(item, names)
        if not columns.types.keys().isdisjoint(own):
            # The columns of lines on standard input are not known before.
            columns = _Columns(mode, None, {*columns.taken, *own})
            columns.report(item.row[0], log)
        cells = columns.cells(prediction)
        found = {n: v for n, v in cells.items() if v is not None}
        if table.ending != JSON_LINES:
            yield _json({**own, **found})
        elif item.row is None:
            yield _json({"text": item.texts[0], **found})
        else:
            # The text of an object, with more in it.
            text = item.row[1].strip()[:-1].rstrip()
            yield f"{text}{', ' if own else ''}{_json(found)[1:]}"


class _Columns:
    """The columns that a table gets.

    `taken` are the names that it has. `labels` are those whose probabilities
    have columns; None: they are an object. `types` are those of the new
    columns, by their names.
    """

    def __init__(
        self, mode: Mode, labels: Sequence[str] | None, taken: set[str]
    ) -> None:
        self.taken = taken
        self._mode, self._labels = mode, labels or ()
        types = {
            name: kind
            for name, kind in mode.added.items()
            if labels is None or kind != "object"
        }
        types |= dict.fromkeys(map(_probability, self._labels), "double")
        types[_ERROR] = "string"
        for number in itertools.count(1):
            suffix = f"_{number}" if number > 1 else ""
            self._names = {name: f"{name}{suffix}" for name in types}
            if taken.isdisjoint(self._names.values()):
                break
        self._clashes = sorted(taken.intersection(types))
        self.types = {self._names[n]: kind for n, kind in types.items()}

    def report(self, path: str, log: Log) -> None:
        """Logs which names are taken, if any."""
        if self._clashes:
            log(
                f"{path} already has {listed(self._clashes, 12)}; the new "
                f"columns are called {listed(self.types, 12)}."
            )

    def cells(self, found: Any) -> dict[str, Any]:
        """Returns the values of a prediction, or of an error, by the names."""
        fields = {_ERROR: str(found)}
        if not isinstance(found, UserError):
            fields = _fields(self._mode, found, self._labels)
        return {new: fields.get(name) for name, new in self._names.items()}


def _fields(mode: Mode, found: Any, labels: Sequence[str]) -> dict[str, Any]:
    """Returns the added cells of a row, by the columns' first names.

    Names of gold labels are those of the table's own columns.
    """
    fields = dict(mode.fields(found))
    for name, new in _RENAMED.items():
        if name in fields:
            fields[new] = fields.pop(name)
    values, answer = fields.get("probabilities"), fields.get("prediction")
    if isinstance(values, Mapping):
        if isinstance(answer, str):
            fields["probability"] = values[answer]
        fields |= {_probability(label): values[label] for label in labels}
    return fields


def _probability(label: str) -> str:
    return f"probability_{label}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
