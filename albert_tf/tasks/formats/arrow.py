"""Parquet files, and data sets that `datasets` saved to disk.

Main entries: `read_parquet`, `read_saved` and `saved_files`. The first two
need pyarrow, which is imported when there is such a file.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.config import UserError, listed, require
from albert_tf.io import files
from albert_tf.io.encoding import HEAD_BYTES, refuse_pointer
from albert_tf.io.json_files import read_json
from albert_tf.tasks.formats.json_values import Number
from albert_tf.tasks.formats.parquet_parts import parts_of

# The files by which a directory of `Dataset.save_to_disk` is recognised.
STATE = "state.json"
INFO = "dataset_info.json"
# Key of what `datasets` writes into the schema of a file.
_METADATA = b"huggingface"
_BATCH_ROWS = 1024
# What pyarrow raises for a value that Python has not.
_NO_VALUE = (ArithmeticError, LookupError, ValueError)


class ArrowRow(NamedTuple):
    """A row: its values as those of JSON lines, its file and number.

    It is row `number` of `batch`; `stored` are its values there.
    """

    values: Mapping[str, Any]
    location: str
    stored: Mapping[str, Any]
    batch: Any
    number: int


class ArrowTable(NamedTuple):
    """A file's schema, its rows, each read when it is due, and their number."""

    schema: Any
    rows: Iterator[ArrowRow]
    num_rows: int


def load_pyarrow() -> Any:
    """Returns pyarrow; raises UserError where it is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise UserError(
            "Parquet files and saved data sets need pyarrow: pip install "
            "pyarrow."
        ) from None
    return pyarrow


def read_parquet(path: str) -> ArrowTable:
    """Returns the table in a Parquet file, in its parts or in a directory's.

    `NAME-00000-of-00003.parquet` stands for all three. The columns have the
    type that holds those of all parts. Raises UserError for a file that is bad
    or missing.
    """
    arrow = load_pyarrow()
    paths = parts_of(path)
    # One after another: there may be more than can be open.
    schemas, sizes = zip(
        *(
            (file.schema_arrow, file.metadata.num_rows)
            for file in map(open_parquet, paths)
        ),
        strict=True,
    )
    for part, schema in zip(paths, schemas, strict=True):
        require(
            sorted(schema.names) == sorted(schemas[0].names),
            f"{part} has other columns than {path}.",
        )
    _check_columns(path, schemas[0])
    try:
        schema = _unified(schemas)
    except arrow.ArrowException as error:
        raise UserError(
            f"{described(path, error)} Write all parts with one schema."
        ) from None
    tables = [
        _read_part(part, schema, num_rows)
        for part, num_rows in zip(paths, sizes, strict=True)
    ]
    return ArrowTable(
        schema,
        itertools.chain.from_iterable(table.rows for table in tables),
        sum(sizes),
    )


def _unified(schemas: Sequence[Any]) -> Any:
    """Returns the schema that holds those of all parts; raises ArrowException.

    Dictionaries and views are plain types where these differ, as they do for
    columns of categories.
    """
    arrow = load_pyarrow()
    types = arrow.types
    views = {arrow.string_view(): arrow.string()}
    views[arrow.binary_view()] = arrow.binary()

    def plain(kind: Any) -> Any:
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return views.get(kind, kind)

    def unify(schemas: Iterable[Any]) -> Any:
        return arrow.unify_schemas(schemas, promote_options="permissive")

    with contextlib.suppress(arrow.ArrowException):
        return unify(schemas)
    return unify(
        arrow.schema(
            [f.with_type(_replaced(f.type, plain)) for f in schema],
            schema.metadata,
        )
        for schema in schemas
    )


def open_parquet(path: str) -> Any:
    """Returns pyarrow's file of Parquet; raises UserError for another."""
    arrow = load_pyarrow()
    from pyarrow import parquet

    try:
        file = files.open(path)
        refuse_pointer(path, file.read(HEAD_BYTES))
        return parquet.ParquetFile(file)
    except (OSError, arrow.ArrowException) as error:
        raise UserError(described(path, error)) from None


def _read_part(path: str, schema: Any, num_rows: int) -> ArrowTable:
    def batches() -> Iterator[Any]:
        for batch in open_parquet(path).iter_batches(_BATCH_ROWS):
            batch = batch.select(schema.names)
            yield batch if batch.schema == schema else batch.cast(schema)

    return _table(path, schema, batches, num_rows, {})


def is_saved(directory: str) -> bool:
    """Returns whether `Dataset.save_to_disk` wrote a directory."""
    names = (STATE, INFO)
    return all(files.isfile(os.path.join(directory, n)) for n in names)


def saved_files(directory: str, file_system: Any = files) -> list[str]:
    """Returns the files with the rows of a data set in a directory, in order.

    `file_system` is a module with `files.open`. Raises UserError for a data set
    that is damaged, or whose rows were selected without being rewritten.
    """
    state_path = os.path.join(directory, STATE)
    state = read_json(state_path, limit=None, file_system=file_system)
    stored = state.get("_data_files")
    names = [
        entry.get("filename") if isinstance(entry, dict) else None
        for entry in (stored if isinstance(stored, list) else [])
    ]
    require(
        bool(names) and all(_is_plain(name) for name in names),
        f"{state_path}: expected names of files as '_data_files'.",
    )
    require(
        state.get("_indices_files") in (None, []),
        f"{state_path}: the data set selects rows of its files; save it with "
        "dataset.flatten_indices().save_to_disk(...).",
    )
    return [os.path.join(directory, str(name)) for name in names]


def read_saved(directory: str) -> ArrowTable:
    """Returns the table in a directory of `Dataset.save_to_disk`.

    Raises UserError for one that is damaged; see `saved_files`.
    """
    arrow = load_pyarrow()
    paths = saved_files(directory)
    features = read_json(os.path.join(directory, INFO)).get("features")

    def stream(path: str) -> Any:
        return arrow.ipc.open_stream(files.open(path))

    def batches() -> Iterator[Any]:
        for path in paths:
            for batch in stream(path):
                for start in range(0, batch.num_rows, _BATCH_ROWS):
                    yield batch.slice(start, _BATCH_ROWS)

    try:
        schema = stream(paths[0]).schema
        num_rows = sum(batch.num_rows for batch in batches())
    except (OSError, arrow.ArrowException) as error:
        raise UserError(described(directory, error)) from None
    _check_columns(directory, schema)
    return _table(directory, schema, batches, num_rows, features)


def _is_plain(name: Any) -> bool:
    """Returns whether a name is that of a file right in a directory."""
    return isinstance(name, str) and os.path.basename(name) == name != ""


def described(path: str, error: Exception) -> str:
    """Returns a line on an error of pyarrow, or the system, with a file."""
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return f"{path}: {reason.rstrip('.')}."


def _check_columns(path: str, schema: Any) -> None:
    require(
        len({*map(str.strip, schema.names)}) == len(schema.names),
        f"{path}: expected distinct columns, got {listed(schema.names, 12)}.",
    )


def _table(
    path: str,
    schema: Any,
    batches: Callable[[], Iterator[Any]],
    num_rows: int,
    features: Any,
) -> ArrowTable:
    arrow = load_pyarrow()
    classes = _classes(features or _features(schema))

    def rows() -> Iterator[ArrowRow]:
        number = 0
        try:
            for batch in batches():
                for index, values in enumerate(_python_rows(batch)):
                    number += 1
                    named = {
                        name.strip(): _named(value, classes.get(name))
                        for name, value in values.items()
                        if not (name in classes and value == -1)
                    }
                    location = f"{path}:{number}"
                    yield ArrowRow(named, location, values, batch, index)
        except UserError:
            raise
        except (OSError, arrow.ArrowException, *_NO_VALUE) as error:
            raise UserError(described(path, error)) from None

    return ArrowTable(schema, rows(), num_rows)


def _python_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yields the rows of a batch, as its `to_pylist` does.

    But maps are objects. Python's times lack nanoseconds, years above 9999 and
    some zones: columns with such, at any depth, have texts.
    """
    columns = []
    for column in batch.columns:
        try:
            columns.append(_python_values(column))
        except _NO_VALUE:
            columns.append(_python_values(_with_texts_of_times(column)))
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


def _python_values(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if "map<" not in str(column.type):
        return values
    return [_with_objects(value, column.type) for value in values]


def _with_objects(value: Any, kind: Any) -> Any:
    """Returns a value of a type with its maps, lists of pairs, as dicts.

    One with a key that is there twice, or that is a list or an object, stays a
    list.
    """
    types = load_pyarrow().types
    if value is None or not types.is_nested(kind):
        return value
    if types.is_struct(kind):
        return {f.name: _with_objects(value[f.name], f.type) for f in kind}
    if not types.is_map(kind):
        return [_with_objects(item, kind.value_type) for item in value]
    pairs = [[key, _with_objects(item, kind.item_type)] for key, item in value]
    with contextlib.suppress(TypeError):
        found = dict(pairs)
        return found if len(found) == len(pairs) else pairs
    return pairs


def _with_texts_of_times(column: Any) -> Any:
    """Returns a column with texts of its times, and numbers of durations."""
    arrow = load_pyarrow()
    types = arrow.types

    def zoneless(kind: Any) -> Any:
        if types.is_duration(kind):
            return arrow.int64()
        return arrow.timestamp(kind.unit) if types.is_timestamp(kind) else kind

    def text(kind: Any) -> Any:
        return arrow.string() if types.is_temporal(kind) else kind

    kind = column.type
    column = column.cast(_replaced(kind, zoneless))
    return column.cast(_replaced(kind, text))


def _replaced(kind: Any, replace: Callable[[Any], Any]) -> Any:
    """Returns a type with others in place of those within it."""
    arrow = load_pyarrow()
    types = arrow.types

    def field(inner: Any) -> Any:
        return inner.with_type(_replaced(inner.type, replace))

    if types.is_struct(kind):
        return arrow.struct([field(inner) for inner in kind])
    if types.is_map(kind):
        return arrow.map_(field(kind.key_field), field(kind.item_field))
    if types.is_list(kind) or types.is_large_list(kind):
        return arrow.list_(field(kind.value_field))
    if types.is_fixed_size_list(kind):
        return arrow.list_(field(kind.value_field), kind.list_size)
    return replace(kind)


def text_of(value: bytes) -> str | bytes:
    """Returns the text that bytes are in UTF-8, or else the bytes.

    Spark, Hive and Impala may write strings as bytes without a type.
    """
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _features(schema: Any) -> Any:
    """Returns the features that `datasets` writes into a schema, if any."""
    try:
        content = json.loads((schema.metadata or {})[_METADATA])
        return content["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}


def _classes(features: Any) -> dict[str, list[str]]:
    """Returns the names of classes by the columns that hold their numbers."""
    found = {}
    for name, feature in dict(features or {}).items():
        # A list of classes, in the forms of several versions of `datasets`.
        while isinstance(feature, list) and feature:
            (feature, *_) = feature
        while isinstance(feature, dict) and "feature" in feature:
            feature = feature["feature"]
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            found[name] = list(map(str, feature.get("names") or []))
    return {name: names for name, names in found.items() if names}


def _named(value: Any, classes: list[str] | None) -> Any:
    """Returns a value as in JSON lines, with Numbers.

    `classes` are the names that numbers stand for.
    """
    if isinstance(value, list):
        return [_named(item, classes) for item in value]
    if isinstance(value, dict):
        return {str(key): _named(item, None) for key, item in value.items()}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, bytes):
        return text_of(value)
    if value != value:  # NaN, which stands for null
        return None
    if classes and isinstance(value, int) and 0 <= value < len(classes):
        return classes[value]
    return Number(value) if isinstance(value, int | float) else str(value)
