"""Rows of tables with more columns, as Parquet."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from albert_tf.prediction.forms import Input
from albert_tf.prediction.inputs import Table
from albert_tf.prediction.items import batches
from albert_tf.prediction.row_values import cell_text, values_of
from albert_tf.tasks.formats.arrow import ArrowRow, load_pyarrow
from albert_tf.text.normalization import replace_surrogates

_PARQUET_ROWS = 1024
# The key of what Arrow's metadata say of columns to pandas, which reads no
# others. `datasets` reads others too, and finds the names of its classes.
_OF_PANDAS = b"pandas"
# The names that pandas gives the types of added columns.
_PANDAS_TYPES = {
    "string": ("unicode", "object"),
    "double": ("float64", "float64"),
    "strings": ("list[unicode]", "object"),
    "doubles": ("list[float64]", "object"),
}
# Functions that convert values by types of Arrow, since numbers of JSON lines
# are texts.
_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "string": cell_text,
    "int64": int,
    "double": float,
}


def write_parquet(
    file: IO[bytes],
    table: Table,
    columns: Sequence[tuple[str, str]],
    added: Mapping[str, str],
    rows: Iterable[tuple[Input, Mapping[str, Any]]],
) -> None:
    """Writes rows, each with the values of the `added` columns.

    Those of Arrow keep their types; others have the types of `columns`, each
    its name and type.
    """
    arrow = load_pyarrow()
    from pyarrow import parquet

    types = {
        "string": arrow.string(),
        "double": arrow.float64(),
        "int64": arrow.int64(),
        "bool": arrow.bool_(),
        "strings": arrow.list_(arrow.string()),
        "doubles": arrow.list_(arrow.float64()),
    }

    def fields(columns: Iterable[tuple[str, str]]) -> list[Any]:
        return [arrow.field(name, types[kind]) for name, kind in columns]

    is_arrow = table.opened.schema is not None
    own = table.opened.schema if is_arrow else arrow.schema(fields(columns))
    metadata = dict(own.metadata or {})
    if of_pandas := metadata.pop(_OF_PANDAS, b""):
        with contextlib.suppress(KeyError, TypeError, ValueError):
            metadata[_OF_PANDAS] = _with_columns(of_pandas, added)
    schema = arrow.schema([*own, *fields(added.items())], metadata or None)
    with parquet.ParquetWriter(file, schema) as writer:
        for batch in batches(rows, _PARQUET_ROWS):
            if is_arrow:
                runs = _runs([item.row for item, _ in batch])
                stored = [
                    b.slice(start, stop - start) for b, start, stop in runs
                ]
                arrays = arrow.Table.from_batches(stored, own).columns
            else:
                values = [values_of(item, own.names) for item, _ in batch]
                arrays = [_array(f, values) for f in own]
            cells = [found for _, found in batch]
            arrays += [_array(f, cells) for f in fields(added.items())]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _array(field: Any, rows: Iterable[Mapping[str, Any]]) -> Any:
    """Returns the values of a field in rows as an array of its type."""
    values = [row.get(field.name) for row in rows]
    if convert := _CONVERSIONS.get(str(field.type)):
        values = [None if v is None else convert(v) for v in values]
    return load_pyarrow().array(map(_storable, values), field.type)


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
