"""The texts of Parquet files and of saved data sets, as lines of JSON.

Main entries: `parquet_reader` and `stream_reader`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedReader
from typing import Any

from albert_tf.config import UserError, listed, require
from albert_tf.io import files
from albert_tf.io.encoding import HEAD_BYTES, refuse_pointer
from albert_tf.tasks.formats.arrow import load_pyarrow

PARQUET_SUFFIX = ".parquet"
# A stream of Arrow, as `datasets` saves the rows of a data set.
STREAM_SUFFIX = ".arrow"
_FEATHER = b"ARROW1"
_BATCH_ROWS = 256

# Returns the next bytes, at most so many.
Read = Callable[[int], memoryview]


def parquet_reader(path: str, column: str) -> Read:
    """Returns a function that reads the rows of a Parquet file.

    They are lines of JSON, each an object with the column. Raises UserError,
    here or when it is read, for a file that is no Parquet or is damaged, and
    without such a column.
    """
    arrow = load_pyarrow()
    from pyarrow import parquet

    try:
        file = files.open(path)
        refuse_pointer(path, file.read(HEAD_BYTES))
        table = parquet.ParquetFile(file)
    except arrow.ArrowException as error:
        raise _damaged(path, error) from None
    _check_column(path, table.schema_arrow.names, column)
    return _reader(path, table.iter_batches(_BATCH_ROWS, columns=[column]))


def stream_reader(path: str, file: BufferedReader, column: str) -> Read:
    """Returns a function that reads the rows of an open stream of Arrow.

    Like that of `parquet_reader`; the file is read from its start to its end.
    """
    arrow = load_pyarrow()
    head = file.peek(HEAD_BYTES)
    refuse_pointer(path, head)
    require(
        not head.startswith(_FEATHER),
        f"{path} is a Feather file, expected a stream of Arrow, as `datasets` "
        "saves data; write it as Parquet.",
    )
    try:
        stream = arrow.ipc.open_stream(file)
    except (OSError, arrow.ArrowException) as error:
        raise _damaged(path, error) from None
    _check_column(path, stream.schema.names, column)
    return _reader(
        path,
        (
            batch.select([column]).slice(start, _BATCH_ROWS)
            for batch in stream
            for start in range(0, batch.num_rows, _BATCH_ROWS)
        ),
    )


def _check_column(path: str, names: Sequence[str], column: str) -> None:
    require(
        column in names,
        f"{path}: expected a column {column!r}, got {listed(names, 12)}; name "
        "the one that has the text with --text_column.",
    )


def _damaged(path: str, error: Exception) -> UserError:
    return UserError(f"{path}: {str(error).splitlines()[0]}")


def _reader(path: str, batches: Iterable[Any]) -> Read:
    """Returns a function that reads the rows of batches as lines of JSON."""
    arrow = load_pyarrow()

    def lines() -> Iterator[bytes]:
        try:
            for batch in batches:
                for row in batch.to_pylist():
                    yield json.dumps(row, default=_text).encode() + b"\n"
        except (OSError, arrow.ArrowException) as error:
            raise _damaged(path, error) from None

    following = lines()
    rest = memoryview(b"")

    def read(size: int) -> memoryview:
        nonlocal rest
        rest = rest or memoryview(next(following, b""))
        found, rest = rest[:size], rest[size:]
        return found

    return read


def _text(value: Any) -> str:
    """Returns a value that JSON has not as text; bytes as those of a file."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return str(value)
