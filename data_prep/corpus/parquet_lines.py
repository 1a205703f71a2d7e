"""The texts of a Parquet file, as lines of JSON."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from albert_tf.config import UserError, listed, require
from albert_tf.io import files
from albert_tf.io.encoding import HEAD_BYTES, refuse_pointer
from albert_tf.tasks.formats.arrow import load_pyarrow

PARQUET_SUFFIX = ".parquet"
_BATCH_ROWS = 256


def _text(value: Any) -> str:
    """Returns a value that JSON has not as text; bytes as those of a file."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return str(value)


def parquet_reader(path: str, column: str) -> Callable[[int], memoryview]:
    """Returns a function that reads the next bytes, at most so many.

    They are those of a line of JSON for each row, an object with the column.
    Raises UserError, here or when it is read, for a file that is no Parquet or
    is damaged, and without such a column.
    """
    arrow = load_pyarrow()
    from pyarrow import parquet

    try:
        file = files.open(path)
        refuse_pointer(path, file.read(HEAD_BYTES))
        table = parquet.ParquetFile(file)
    except arrow.ArrowException as error:
        raise UserError(f"{path}: {str(error).splitlines()[0]}") from None
    names = table.schema_arrow.names
    require(
        column in names,
        f"{path}: expected a column {column!r}, got {listed(names, 12)}; name "
        "the one that has the text with --text_column.",
    )

    def lines() -> Iterator[bytes]:
        try:
            for batch in table.iter_batches(_BATCH_ROWS, columns=[column]):
                for row in batch.to_pylist():
                    yield json.dumps(row, default=_text).encode() + b"\n"
        except arrow.ArrowException as error:
            raise UserError(f"{path}: {str(error).splitlines()[0]}") from None

    following = lines()
    rest = memoryview(b"")

    def read(size: int) -> memoryview:
        nonlocal rest
        rest = rest or memoryview(next(following, b""))
        found, rest = rest[:size], rest[size:]
        return found

    return read
