"""Tables: the benchmarks', whose quotes are literal, and users' own."""

import codecs
import contextlib
import csv
import dataclasses
import io
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from albert_tf.config import UserError, lookup, require
from albert_tf.io import files
from albert_tf.io.encoding import refuse_utf16
from albert_tf.tasks.examples import Log

# By the extension of a file.
DELIMITERS = {".tsv": "\t", ".csv": ","}
SEPARATORS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "vertical bar"}

_LINE_END = re.compile(r"\r+\n?|\n")
# Stands for a CR within a line, which the csv module takes for its end. UTF-8
# has no such character.
_INNER_CR = "\ud800"


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table: its fields, not stripped, and its file and line.

    `location` is its first line of `num_lines`.
    """

    fields: list[str]
    location: str
    num_lines: int = 1


def read_text(path: str, advice: str) -> str:
    """Returns the text of a UTF-8 file, without its byte-order mark.

    Raises UserError, to which `advice` is appended, for a file that is missing
    or empty; and for one that is not UTF-8.
    """
    try:
        with files.open(path) as file:
            content = file.read()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {advice}") from None
    refuse_utf16(path, content)
    content = content.removeprefix(codecs.BOM_UTF8)
    require(bool(content), f"{path} is empty; {advice}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, before.rfind(b"\n") + 1
        raise UserError(
            f"{path}:{line}: byte {error.start - column} "
            f"(0x{content[error.start]:02x}) is not UTF-8; convert the file, "
            "for example with iconv -f latin1 -t utf-8."
        ) from None


def read_lines(path: str, advice: str) -> Iterator[tuple[str, str]]:
    """Yields the location and the text of each line of a UTF-8 file.

    Raises UserError as `read_text` does, and for a file whose lines end with
    CR alone.
    """
    text = read_text(path, advice)
    if "\n" not in text and "\r" in text.rstrip("\r"):
        # The line ends of classic Mac OS.
        raise UserError(
            f"{path}: its lines end with CR alone; convert the file, for "
            "example with tr '\\r' '\\n'."
        )
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        yield f"{path}:{number}", line.rstrip("\r")


def read_table(path: str, advice: str) -> list[Row]:
    """Returns the rows of a tab-separated file, with its header.

    Quotes are literal, as the benchmarks write them. Blank lines at the end
    of a table of several columns are not rows.
    """
    lines = read_lines(path, advice)
    rows = [Row(text.split("\t"), location) for location, text in lines]
    while len(rows[0].fields) > 1 and rows[-1].fields == [""]:
        rows.pop()
    return rows


def read_own_table(
    path: str, advice: str, delimiter: str, quoting: str, log: Log
) -> list[Row]:
    """Returns the rows of a user's table, its header first, of any width.

    `quoting` is a name of QUOTING. Lines end with LF, CR LF or, where the
    first one does, with CR. Blank lines are no rows, except those below the
    header of a single column. Logs how quotes are read if a field begins with
    one, and that backslashes escape nothing if a field ends in one.

    Raises:
        UserError: as `read_text` does; for quotes unlike those of CSV, and for
            a table that has another separator.
    """
    choice = lookup(QUOTING, quoting, "quoting")
    text, newline = _marked(read_text(path, advice))

    def rows_of(delimiter: str) -> Iterator[Row]:
        """Yields the rows; those of blank lines are []."""
        return choice.read(path, io.StringIO(text, newline=newline), delimiter)

    _check_separator(path, text, delimiter, rows_of)
    rows = list(itertools.dropwhile(lambda r: not r.fields, rows_of(delimiter)))
    require(bool(rows), f"{path} is empty; {advice}")
    if len(rows[0].fields) == 1:
        rows = [dataclasses.replace(r, fields=r.fields or [""]) for r in rows]
    else:
        rows = [row for row in rows if row.fields]
    if re.search(rf'(?:^|[{delimiter}\r\n])"', text):
        num_lines = sum(1 for _ in io.StringIO(text, newline=newline))
        line = (
            f"{path}: quotes are read {choice.described}; {num_lines} lines "
            f"hold {len(rows)} rows, with the header"
        )
        longest = max(rows, key=lambda row: row.num_lines)
        if longest.num_lines > 1:
            begin = longest.location.rpartition(":")[2]
            line += (
                f"; the longest, of {longest.num_lines} lines, begins in line "
                f"{begin}"
            )
        log(f"{line}.")
    escaped = [r for r in rows if any(f.endswith("\\") for f in r.fields)]
    if escaped:
        log(
            f"{escaped[0].location}: fields of {len(escaped)} rows end in a "
            "backslash, which is a character like others here; where it was "
            "to escape a separator or line end, write the table with quotes."
        )
    return rows


def _marked(text: str) -> tuple[str, str]:
    """Returns a text with marks in place of a CR within a line, and `newline`.

    This is that of `open`. Such a CR is part of a field; pandas and R write it
    without quotes. But where the first line ends with CR, as in classic Mac
    OS, others may end so too.
    """
    first = _LINE_END.search(text)
    if first and not first[0].endswith("\n"):
        return text, ""

    def mark(found: re.Match[str]) -> str:
        is_end = found[0].endswith("\n") or found.end() == len(text)
        return found[0] if is_end else _INNER_CR * len(found[0])

    return _LINE_END.sub(mark, text) if "\r" in text else text, "\n"


def _read_csv(path: str, lines: io.StringIO, delimiter: str) -> Iterator[Row]:
    # The default limit of a field is 131,072 characters.
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    first = 1
    try:
        for fields in reader:
            after = reader.line_num + 1
            fields = [field.replace(_INNER_CR, "\r") for field in fields]
            yield Row(fields, f"{path}:{first}", after - first)
            first = after
    except csv.Error as error:
        fault = str(error).replace("\t", "\\t")
        raise UserError(
            f"{path}:{reader.line_num}: not quoted as in CSV ({fault}), in the "
            f"row that begins in line {first}; within quotes a quote is "
            "written twice. --quoting=none reads all quotes literally."
        ) from None


def _read_literal(
    path: str, lines: io.StringIO, delimiter: str
) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        text = line.rstrip("\r\n").replace(_INNER_CR, "\r")
        yield Row(text.split(delimiter) if text else [], f"{path}:{number}")


class _Quoting(NamedTuple):
    """A way to read quotes; `described` completes a sentence on it."""

    read: Callable[[str, io.StringIO, str], Iterator[Row]]
    described: str


QUOTING = {
    "csv": _Quoting(
        _read_csv, "as in CSV (--quoting=none reads them literally)"
    ),
    "none": _Quoting(_read_literal, "literally (--quoting=none)"),
}


def _check_separator(
    path: str,
    text: str,
    delimiter: str,
    rows_of: Callable[[str], Iterator[Row]],
) -> None:
    """Raises UserError where another separator splits header and first row."""
    if found := re.match(r'"?(sep=.)"?[\r\n]', text):
        raise UserError(
            f"{path}:1: only Excel reads the line {found[1]!r}; remove it, so "
            "that the first line names the columns."
        )

    def widths(delimiter: str) -> list[int]:
        found = []
        # With another separator the quotes may not be those of CSV.
        with contextlib.suppress(UserError):
            for row in itertools.islice(
                (r for r in rows_of(delimiter) if r.fields), 2
            ):
                found.append(len(row.fields))
        return found

    if widths(delimiter)[:1] not in ([], [1]):
        return
    for other, name in SEPARATORS.items():
        found_widths = set(widths(other))
        if len(found_widths) != 1 or found_widths == {1}:
            continue
        extension = {value: key for key, value in DELIMITERS.items()}.get(other)
        advice = f"name the file *{extension}"
        if not extension:
            advice = (
                'convert the file, for example with python -c "import csv, '
                "sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, "
                f"delimiter='{other}'))\" < {path} > new.csv"
            )
        raise UserError(
            f"{path}: the separator looks like a {name} ({other!r}), expected "
            f"a {SEPARATORS[delimiter]}; {advice}."
        )
