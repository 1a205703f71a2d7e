"""Tables with the columns of predictions: the rows as they were, and these.

Main entry: `write_table`. Rows of .csv, .tsv and .jsonl keep their bytes where
the form stays the same, those of Arrow their types.
"""

import abc
import codecs
import contextlib
import io
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from albert_tf.config import Log, UserError, listed, require, shown
from albert_tf.prediction.forms import Input
from albert_tf.prediction.inputs import Table, json_columns
from albert_tf.prediction.modes import Mode
from albert_tf.prediction.outputs import cell_of, quoted
from albert_tf.tasks.formats.arrow import ArrowRow, load_pyarrow, text_of
from albert_tf.tasks.formats.class_folders import TextFile
from albert_tf.tasks.formats.json_values import parse_line
from albert_tf.tasks.formats.rows import (
    FILE_COLUMN,
    JSON_LINES,
    LABEL_COLUMN,
    PARQUET,
    ending_of,
    json_record,
)
from albert_tf.tasks.formats.tables import DELIMITERS, Row
from albert_tf.text.normalization import replace_surrogates

Rows = Iterable[tuple[Input, Any]]
# New columns by the names of fields that a table may have of its own.
_RENAMED = {
    "label": "prediction",
    "labels": "prediction",
    "entities": "predicted_entities",
}
# Name of the column with what prevents a prediction.
_ERROR = "error"
_PARQUET_ROWS = 1024
# The key of what Arrow's metadata say of columns to pandas, which reads no
# others. `datasets` reads others too, and finds the names of its classes.
_OF_PANDAS = b"pandas"
# What pandas calls the types of added columns.
_PANDAS_TYPES = {
    "string": ("unicode", "object"),
    "double": ("float64", "float64"),
    "strings": ("list[unicode]", "object"),
    "doubles": ("list[float64]", "object"),
}


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
    writer = _writer(file, name, table)
    columns = _Columns(mode, labels, writer.flat, set(writer.columns))
    columns.report(table.path, log)
    writer.begin(columns.types)
    for item, found in rows:
        writer.write(item, columns.cells(found))
    writer.end()


def json_rows(rows: Rows, mode: Mode, table: Table, log: Log) -> Iterator[str]:
    """Yields a JSON object for each row of a table, with its prediction."""
    writer = _JsonWriter(io.BytesIO(), JSON_LINES, table)
    columns = _Columns(mode, (), False, set(writer.columns))
    columns.report(table.path, log)
    for item, found in rows:
        yield writer.line(item, columns.cells(found))


class _Columns:
    """The columns that a table gets.

    `taken` are the names that it has. A `flat` form has a column for the
    probability of each label, others an object. `types` are those of the new
    columns, by their names.
    """

    def __init__(
        self, mode: Mode, labels: Sequence[str], flat: bool, taken: set[str]
    ) -> None:
        self._mode, self._labels = mode, labels if flat else ()
        types = {
            name: kind
            for name, kind in mode.added.items()
            if not (flat and kind == "object")
        }
        types |= dict.fromkeys(map(_probability, self._labels), "double")
        types[_ERROR] = "string"
        for number in itertools.count(1):
            suffix = f"_{number}" if number > 1 else ""
            self._names = {name: f"{name}{suffix}" for name in types}
            if taken.isdisjoint(self._names.values()):
                break
        self._clash = min(taken.intersection(types), default="")
        self.types = {self._names[n]: kind for n, kind in types.items()}

    def report(self, path: str, log: Log) -> None:
        """Logs which names are taken, if any."""
        if self._clash:
            log(
                f"{path} has a column {shown(self._clash)} already; the new "
                f"ones are called {listed(self.types, 12)}."
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


class _Writer(abc.ABC):
    """Writes rows in a form.

    Attributes:
        flat: whether each label's probability has a column.
        columns: of the table, whose names are taken.
        types: of these, int64, double or bool; others are strings.
    """

    flat = True

    def __init__(self, file: IO[bytes], ending: str, table: Table) -> None:
        self._file, self._ending, self._table = file, ending, table
        self.types: Mapping[str, str] = {}
        if table.columns is None and table.path != "-":
            self.types = json_columns(table.path)
        self.columns = table.columns or [*self.types]

    @abc.abstractmethod
    def begin(self, added: Mapping[str, str]) -> None:
        """Takes the added columns, with their types."""

    @abc.abstractmethod
    def write(self, item: Input, cells: Mapping[str, Any]) -> None:
        """Writes a row, with the values of the added columns."""

    def end(self) -> None:
        """Writes what is left."""
        self._file.flush()

    def values(self, item: Input) -> dict[str, Any]:
        """Returns the values of a row by its columns, as JSON has them.

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
            return dict(zip(self.columns, row.fields, strict=False))
        # A line of JSON, which is no object where there is no row.
        return dict(json_record(row[:2]).values) if row else {}


def _writer(file: IO[bytes], name: str, table: Table) -> _Writer:
    forms: dict[str, type[_Writer]] = {
        **dict.fromkeys(DELIMITERS, _DelimitedWriter),
        JSON_LINES: _JsonWriter,
        PARQUET: _ParquetWriter,
    }
    ending = ending_of(name)
    if ending not in forms:
        ending = table.ending or JSON_LINES
    require(
        table.path != "-" or table.columns is not None or ending == JSON_LINES,
        f"--output={name}: the columns of JSON lines on standard input are "
        "known at their end; name a .jsonl.",
    )
    return forms[ending](file, ending, table)


class _DelimitedWriter(_Writer):
    """Writes .csv and .tsv."""

    def __init__(self, file: IO[bytes], ending: str, table: Table) -> None:
        super().__init__(file, ending, table)
        self._delimiter = DELIMITERS[ending]
        # The same form: the text of a row is kept.
        self._is_kept = table.ending == ending
        self._is_literal = self._is_kept and table.quoting == "none"
        self._line_end = "\n"
        if table.header and self._is_kept:
            self._line_end = _line_end(table.header.text) or "\n"

    def begin(self, added: Mapping[str, str]) -> None:
        header = self._table.header
        if self._table.has_mark and self._is_kept:
            self._file.write(codecs.BOM_UTF8)
        if header and self._is_kept:
            text = header.text.removesuffix(_line_end(header.text))
            self._write_line(text, added)
        else:
            self._write_line(self._joined(self.columns), added)

    def write(self, item: Input, cells: Mapping[str, Any]) -> None:
        texts = map(_cell_text, cells.values())
        if isinstance(item.row, Row):
            row = item.row
            width = len(self.columns)
            if self._is_kept and len(row.fields) == width:
                start = row.text.removesuffix(_line_end(row.text))
            else:
                # A bad row: its error has how many fields it had.
                missing = [""] * (width - len(row.fields))
                start = self._joined([*row.fields, *missing][:width])
        else:
            values = self.values(item)
            start = self._joined(
                [_cell_text(values.get(name)) for name in self.columns]
            )
        self._write_line(start, texts)

    def _write_line(self, start: str, added: Iterable[str]) -> None:
        line = f"{start}{self._delimiter}{self._joined(list(added))}"
        line += self._line_end
        self._file.write(line.encode("utf-8", "backslashreplace"))

    def _joined(self, cells: Sequence[str]) -> str:
        if self._is_literal:
            return self._delimiter.join(map(self._literal, cells))
        return self._delimiter.join(quoted(c, self._delimiter) for c in cells)

    def _literal(self, cell: str) -> str:
        """Returns a cell without what a table without quotes cannot hold."""
        for special in (self._delimiter, "\r", "\n"):
            cell = cell.replace(special, " ")
        return cell


def _line_end(text: str) -> str:
    return text[len(text.rstrip("\r\n")) :]


class _JsonWriter(_Writer):
    """Writes JSON lines."""

    flat = False

    def begin(self, added: Mapping[str, str]) -> None:
        del added

    def write(self, item: Input, cells: Mapping[str, Any]) -> None:
        line = self.line(item, cells)
        self._file.write(f"{line}\n".encode("utf-8", "backslashreplace"))

    def line(self, item: Input, cells: Mapping[str, Any]) -> str:
        """Returns the object of a row; an error is there where it is one."""
        found = {n: v for n, v in cells.items() if v is not None}
        if self._table.ending != JSON_LINES:
            return _json({**self.values(item), **found})
        if item.row is None:
            return _json({"text": item.texts[0], **found})
        location, text, *_ = item.row
        return _extended(location, text, found)


def _extended(location: str, text: str, added: Mapping[str, Any]) -> str:
    """Returns the text of a JSON object with more in it.

    Raises UserError where it has such keys: those of standard input were not
    known.
    """
    values = parse_line(location, text)
    taken = min(values.keys() & added.keys(), default="")
    require(
        not taken,
        f"{location} has a column {shown(taken)}, which the prediction needs; "
        "give the lines as a file, whose columns are read first.",
    )
    text = text.strip()[:-1].rstrip()
    return f"{text}{', ' if values else ''}{_json(added)[1:]}"


class _ParquetWriter(_Writer):
    """Writes Parquet.

    Columns of tables are strings; those of JSON lines are numbers, or true and
    false, where all values are such.
    """

    def __init__(self, file: IO[bytes], ending: str, table: Table) -> None:
        super().__init__(file, ending, table)
        self._arrow = load_pyarrow()
        self._rows: list[tuple[Input, Mapping[str, Any]]] = []

    def begin(self, added: Mapping[str, str]) -> None:
        from pyarrow import parquet

        arrow = self._arrow
        types = {
            "string": arrow.string(),
            "double": arrow.float64(),
            "int64": arrow.int64(),
            "bool": arrow.bool_(),
            "strings": arrow.list_(arrow.string()),
            "doubles": arrow.list_(arrow.float64()),
        }
        own = self._table.schema
        if own is None:
            own = arrow.schema(
                [
                    (name, types[self.types.get(name, "string")])
                    for name in self.columns
                ]
            )
        metadata = dict(own.metadata or {})
        if of_pandas := metadata.pop(_OF_PANDAS, b""):
            with contextlib.suppress(KeyError, TypeError, ValueError):
                metadata[_OF_PANDAS] = _with_columns(of_pandas, added)
        self._added = [
            arrow.field(name, types[kind]) for name, kind in added.items()
        ]
        self._own = own
        schema = arrow.schema([*own, *self._added], metadata or None)
        self._schema = schema
        self._writer = parquet.ParquetWriter(self._file, schema)

    def write(self, item: Input, cells: Mapping[str, Any]) -> None:
        self._rows.append((item, cells))
        if len(self._rows) == _PARQUET_ROWS:
            self._flush()

    def end(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        arrow = self._arrow
        if self._table.schema is not None:
            batches = [
                batch.slice(start, stop - start)
                for batch, start, stop in _runs([i.row for i, _ in self._rows])
            ]
            columns = arrow.Table.from_batches(batches, self._own).columns
        else:
            values = [self.values(item) for item, _ in self._rows]
            columns = [
                self._array([row.get(f.name) for row in values], f.type)
                for f in self._own
            ]
        added = [
            self._array([cells[f.name] for _, cells in self._rows], f.type)
            for f in self._added
        ]
        self._writer.write_table(
            arrow.Table.from_arrays([*columns, *added], schema=self._schema)
        )
        self._rows.clear()

    def _array(self, values: Sequence[Any], type_: Any) -> Any:
        convert = _CONVERSIONS.get(str(type_))
        if convert:
            values = [None if v is None else convert(v) for v in values]
        return self._arrow.array(map(_storable, values), type_)


def _with_columns(of_pandas: bytes, added: Mapping[str, str]) -> bytes:
    """Returns the metadata of pandas with added columns, of their types.

    Raises KeyError, TypeError or ValueError for what pandas did not write.
    """
    content = json.loads(of_pandas)
    content["columns"] = [*content["columns"]]
    for name, kind in added.items():
        pandas_type, numpy_type = _PANDAS_TYPES[kind]
        column = {
            "name": name,
            "field_name": name,
            "pandas_type": pandas_type,
            "numpy_type": numpy_type,
            "metadata": None,
        }
        content["columns"].append(column)
    levels = content["column_indexes"]
    if [level["pandas_type"] for level in levels] != ["unicode"]:
        # The new names are no numbers, or tuples, as those of the others.
        content["column_indexes"] = []
    return json.dumps(content).encode()


def _storable(value: Any) -> Any:
    """Returns a value without lone surrogates, which JSON can hold."""
    if isinstance(value, list):
        return [*map(_storable, value)]
    return replace_surrogates(value) if isinstance(value, str) else value


def _runs(rows: Sequence[ArrowRow]) -> Iterator[tuple[Any, int, int]]:
    """Yields batch, start and stop of the stretches that rows consist of."""
    first = rows[0]
    stop = first.number
    for row in rows:
        if row.batch is not first.batch or row.number != stop:
            yield first.batch, first.number, stop
            first, stop = row, row.number
        stop += 1
    yield first.batch, first.number, stop


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


def _cell_text(value: Any) -> str:
    """Returns a value as a cell of a table; several are JSON, but labels."""
    if value is None:
        return ""
    value = cell_of(value)
    if isinstance(value, str):
        return value
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# Functions that convert values by types of Arrow, since numbers of JSON lines
# are texts.
_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "string": _cell_text,
    "int64": int,
    "double": float,
}
