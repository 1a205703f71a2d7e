"""Files of predictions: lines of JSON, tables and arrays.

Rows are pairs of an Input and its prediction, or the UserError in place of one.
"""

import json
import os
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np

from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.io.compression import suffix_of
from albert_tf.prediction.forms import Form, Input
from albert_tf.prediction.modes import MODES, Mode
from albert_tf.tasks.formats.parquet_parts import parts_of
from albert_tf.tasks.formats.rows import (
    JSON_EXTENSIONS,
    PARQUET,
    ending_of,
)
from albert_tf.tasks.formats.tables import DELIMITERS
from albert_tf.tasks.kinds.texts import text_fields

NPY = ".npy"
# Endings of files' names; files without one have lines of JSON, or the form of
# a table.
OUTPUT_ENDINGS = (*JSON_EXTENSIONS, *DELIMITERS, PARQUET, NPY)

# A text that begins so may be read as a list.
_BRACKETS = ("[", "{", "(")

Rows = Iterable[tuple[Input, Any]]


def check_output(path: str, name: str, *, of_table: bool = False) -> None:
    """Raises UserError where a mode, a row of MODES, has no such output.

    `of_table` inputs have a row for each prediction.
    """
    ending = ending_of(path)
    require(
        ending != NPY
        or (
            (name == "embed" and not files.is_remote(path))
            and not suffix_of(path)
        ),
        f"--output={path}: arrays are written for --mode=embed, to a local "
        "disk and not compressed; name a .jsonl.",
    )
    with_table = [name for name, row in MODES.items() if row.columns]
    require(
        ending != PARQUET or of_table,
        f"--output={path}: Parquet is written for inputs that are a table; "
        "name a .csv or .jsonl.",
    )
    require(
        of_table or ending not in DELIMITERS or bool(MODES[name].columns),
        f"--output={path}: the predictions of --mode={name} are lists, and "
        f"tables are written for {', '.join(with_table)}; name a .jsonl.",
    )


def refuse_inputs(path: str, source: str) -> None:
    """Raises UserError where an output would replace a file of the inputs."""
    parts = parts_of(source) if ending_of(path) == PARQUET else [source]
    for part in parts:
        require(
            not _is_same(path, part),
            f"--output={path} is the file of --input, which it would replace; "
            "give another name.",
        )


def _is_same(path: str, other: str) -> bool:
    if files.is_remote(path) or files.is_remote(other):
        return path == other
    # A pipe or device is not replaced.
    return all(map(files.isfile, (path, other))) and os.path.samefile(
        path, other
    )


def write_rows(
    file: IO[bytes],
    name: str,
    rows: Rows,
    mode: Mode,
    form: Form,
    labels: Iterable[str],
) -> None:
    """Writes a file of the kind that its name ends in.

    `labels` are those whose probabilities a table has.
    """
    ending = ending_of(name)
    if ending == NPY:
        write_array(file, rows)
        return
    lines = json_lines(rows, mode)
    if delimiter := DELIMITERS.get(ending):
        lines = (
            delimiter.join(quoted(str(c), delimiter) for c in row)
            for row in _table(rows, mode, form, list(labels))
        )
    for line in lines:
        # JSON can hold lone surrogates, and UTF-8 cannot.
        file.write(f"{line}\n".encode("utf-8", "backslashreplace"))


def json_lines(rows: Rows, mode: Mode) -> Iterator[str]:
    """Yields a JSON object for each row."""
    for item, found in rows:
        if isinstance(found, UserError):
            texts = text_fields(item.texts) if item.texts else {}
            fields = {**texts, "error": str(found)}
        else:
            fields = mode.fields(found)
        yield json.dumps(fields, ensure_ascii=False)


def _table(
    rows: Rows, mode: Mode, form: Form, labels: list[str]
) -> Iterator[list[Any]]:
    """Yields the header, and for each row texts, fields and an error."""
    header = [*form.columns, *mode.columns]
    header += [f"probability_{label}" for label in labels]
    yield [*header, "error"]
    for item, found in rows:
        row = [*item.texts, *[""] * len(form.columns)][: len(form.columns)]
        if isinstance(found, UserError):
            row += [""] * (len(header) - len(row)) + [str(found)]
        else:
            fields = mode.fields(found)
            row += [cell_of(fields[n], mode.separator) for n in mode.columns]
            row += [fields["probabilities"][label] for label in labels] + [""]
        yield row


def quoted(cell: str, delimiter: str) -> str:
    """Returns a cell of a table, in quotes where it needs them.

    Also for a CR alone, for which Python's csv module may write none.
    """
    if any(c in cell for c in (delimiter, '"', "\r", "\n")):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def cell_of(value: Any, separator: str) -> Any:
    """Returns the value of a field, several labels as one text.

    These have the separator, if there is one, between them, or are a list in
    JSON where a label has it too or the first one a bracket: both are read as
    labels.
    """
    if not separator or not isinstance(value, list):
        return value
    text = separator.join(value)
    is_within = any(separator in label for label in value)
    if is_within or text.startswith(_BRACKETS):
        return json.dumps(value, ensure_ascii=False)
    return text


def write_array(file: IO[bytes], rows: Rows) -> None:
    """Writes the vectors `[texts, width]`, NaN in place of errors."""
    width = number = 0
    first: UserError | None = None
    for number, (_, found) in enumerate(rows, start=1):
        if isinstance(found, UserError):
            first = first or found
            row = np.full(width, np.nan, "<f4")
        else:
            row = np.array(found.vector, "<f4")
            if not width:
                width = len(row)
                _write_header(file, (0, width))
                before = np.full((number - 1, width), np.nan, "<f4")
                file.write(before.tobytes())
        file.write(row.tobytes())
    reason = f"the first: {first}" if first else "there are no rows."
    require(width > 0, f"No text has a vector; {reason}")
    file.seek(0)
    _write_header(file, (number, width))


def _write_header(file: IO[bytes], shape: tuple[int, int]) -> None:
    """Writes a .npy header, of the same length for any number of rows."""
    description = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, description)
