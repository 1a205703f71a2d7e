"""The texts of Parquet files and of saved data sets: `open_texts`."""

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from albert_tf.config import UserError, listed, require
from albert_tf.io.compression import buffered
from albert_tf.io.encoding import HEAD_BYTES, refuse_pointer
from albert_tf.tasks.formats.arrow import (
    described,
    load_pyarrow,
    open_parquet,
)

PARQUET_SUFFIX = ".parquet"
# A stream of Arrow, as `datasets` saves the rows of a data set.
STREAM_SUFFIX = ".arrow"
_FEATHER = b"ARROW1"
_BATCH_ROWS = 256


def has_rows(path: str) -> bool:
    """Returns whether a file is read by `open_texts`."""
    return path.lower().endswith((PARQUET_SUFFIX, STREAM_SUFFIX))


@contextlib.contextmanager
def open_texts(
    path: str, open_file: Callable[[str, str], BinaryIO], column: str
) -> Iterator[Iterator[str | None]]:
    """Yields the texts in a column, None in rows without a string.

    Of bytes, those that are not UTF-8 are lone surrogates, see PEP 383.

    Raises:
        UserError: for a file that cannot be read, is of another form or has no
            such column.
    """
    try:
        with open_file(path, "rb") as file:
            if path.lower().endswith(PARQUET_SUFFIX):
                batches = _of_parquet(path, column)
            else:
                batches = _of_stream(path, buffered(file.read), column)
            values = (v for batch in batches for v in batch[0].to_pylist())
            yield map(_text, values)
    except (OSError, load_pyarrow().ArrowException) as error:
        raise UserError(described(path, error)) from None


def _of_parquet(path: str, column: str) -> Iterable[Any]:
    table = open_parquet(path)
    _check_column(path, table.schema_arrow.names, column)
    return table.iter_batches(_BATCH_ROWS, columns=[column])


def _of_stream(
    path: str, file: io.BufferedReader, column: str
) -> Iterable[Any]:
    head = file.peek(HEAD_BYTES)
    refuse_pointer(path, head)
    require(
        not head.startswith(_FEATHER),
        f"{path} is a Feather file, expected a stream of Arrow, as `datasets` "
        "saves data; write it as Parquet.",
    )
    stream = load_pyarrow().ipc.open_stream(file)
    _check_column(path, stream.schema.names, column)
    return (
        batch.select([column]).slice(start, _BATCH_ROWS)
        for batch in stream
        for start in range(0, batch.num_rows, _BATCH_ROWS)
    )


def _check_column(path: str, names: Sequence[str], column: str) -> None:
    require(
        column in names,
        f"{path}: expected a column {column!r}, got {listed(names, 12)}; name "
        "the one that has the text with --text_column.",
    )


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else None
