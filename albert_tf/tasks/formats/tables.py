"""Tables with literal quotes, as the benchmarks have them, or CSV's."""

import codecs
import csv
import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence

from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.io.encoding import refuse_utf16
from albert_tf.tasks.examples import Log


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table: its fields, not stripped, and its file and line."""

    fields: list[str]
    location: str


def read_lines(path: str, advice: str) -> Iterator[tuple[str, str]]:
    """Yields the location and the text of each line of a UTF-8 file.

    Raises UserError, to which `advice` is appended, for a file that is missing
    or empty; and for one that is not UTF-8 or whose lines end with CR alone.
    """
    try:
        with files.open(path) as file:
            content = file.read()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {advice}") from None
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise UserError(f"{path} is empty; {advice}")
    refuse_utf16(path, content)
    if b"\n" not in content and b"\r" in content.rstrip(b"\r"):
        # The line ends of classic Mac OS.
        raise UserError(
            f"{path}: its lines end with CR alone; convert the file, for "
            "example with tr '\\r' '\\n'."
        )
    lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(lines, start=1):
        location = f"{path}:{number}"
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{location}: byte {error.start} "
                f"(0x{line[error.start]:02x}) is not UTF-8; convert the file, "
                "for example with iconv -f latin1 -t utf-8."
            ) from None
        yield location, text.rstrip("\r")


def read_table(path: str, advice: str) -> list[Row]:
    """Returns the rows of a tab-separated file, with its header.

    Quotes are literal. Blank lines at the end of a table of several columns
    are not rows.
    """
    return _literal(read_lines(path, advice), "\t")


def read_quoted_table(
    path: str, advice: str, delimiter: str, log: Log
) -> list[Row]:
    """Returns the rows of a table, its header first, all equally long.

    Fields may be quoted as in CSV, and then hold delimiters and line ends.
    Where that fails, or would join lines though every line is a row as it
    stands, all quotes are literal: a text may begin with a quote, and no row
    may be lost in it. Logs a line where both readings are possible. Raises
    UserError for a row with more or fewer fields than the header.
    """
    lines = list(read_lines(path, advice))
    literal = _literal(lines, delimiter)
    fault = _wrong_width(literal, delimiter)
    if any(f.startswith('"') for row in literal for f in row.fields):
        rows, misquoted = _unquoted(lines, delimiter, path)
        # In a single column every line is a row with literal quotes.
        several = len(literal[0].fields) > 1
        if not misquoted and not fault and several and len(rows) < len(literal):
            misquoted = (
                f"{path}: quoted fields would join lines, and every line is a "
                "row by itself."
            )
        if not misquoted:
            if len(rows) < len(lines) or delimiter == "\t":
                log(
                    f"{path}: fields are read without their quotes, as in "
                    f"CSV: {len(lines)} lines hold {len(rows)} rows, with the "
                    "header."
                )
            return rows
        if fault:
            fault = f"{misquoted} With literal quotes: {fault}"
        else:
            log(f"{misquoted} All quotes of the file are read literally.")
    require(not fault, fault)
    return literal


def _literal(lines: Iterable[tuple[str, str]], delimiter: str) -> list[Row]:
    rows = [Row(text.split(delimiter), location) for location, text in lines]
    return _without_blank_end(rows)


def _without_blank_end(rows: list[Row]) -> list[Row]:
    while len(rows[0].fields) > 1 and rows[-1].fields == [""]:
        rows.pop()
    return rows


def _wrong_width(rows: Sequence[Row], delimiter: str) -> str:
    """Returns a message on the first row that is not as long as the header."""
    name = {"\t": "tab", ",": "comma"}[delimiter]
    width = len(rows[0].fields)
    for row in rows:
        if len(row.fields) != width:
            return (
                f"{row.location}: expected {width} {name}-separated fields, "
                f"got {len(row.fields)}: {delimiter.join(row.fields)[:60]!r}."
            )
    return ""


def _unquoted(
    lines: Sequence[tuple[str, str]], delimiter: str, path: str
) -> tuple[list[Row], str]:
    """Returns the rows as the csv module reads them, and the first fault."""
    # The default limit of a field is 131,072 characters.
    csv.field_size_limit(sys.maxsize)
    ended = (f"{text}\n" for _, text in lines)
    reader = csv.reader(ended, delimiter=delimiter, strict=True)
    rows: list[Row] = []
    first = 1
    try:
        for fields in reader:
            rows.append(Row(fields or [""], f"{path}:{first}"))
            first = reader.line_num + 1
    except csv.Error as error:
        return rows, f"{path}:{first}: not quoted as in CSV ({error})."
    rows = _without_blank_end(rows)
    return rows, _wrong_width(rows, delimiter)
