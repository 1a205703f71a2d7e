"""Tables: literal, as the benchmarks write them, or with quoted fields.

A line ends with LF or CRLF.
"""

import codecs
import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.io.encoding import refuse_utf16


@dataclasses.dataclass(frozen=True)
class Row:
    """A row's fields, and where it begins.

    Attributes:
        fields: as they are, not stripped.
        number: of its first line, from 1.
        path: of its file.
    """

    fields: list[str]
    number: int
    path: str

    @property
    def location(self) -> str:
        """File and line, for messages."""
        return f"{self.path}, line {self.number}"


def read_lines(path: str, advice: str) -> Iterator[tuple[int, str]]:
    """Yields the number and the text of each line of a UTF-8 file.

    Args:
        path: of the file.
        advice: what to do when it cannot be read.

    Raises:
        UserError: naming file and line, for a file that is missing or empty,
            one that is UTF-16 or whose lines end with CR alone, or a line
            that is not UTF-8.
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
        # As old programs of the Mac write them.
        raise UserError(
            f"{path}: its lines end with CR alone; convert the file, for "
            "example with tr '\\r' '\\n'."
        )
    lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}, line {number}: byte {error.start} "
                f"(0x{line[error.start]:02x}) is not UTF-8; convert the file, "
                "for example with iconv -f latin1 -t utf-8."
            ) from None
        yield number, text.rstrip("\r")


def read_table(path: str, advice: str) -> list[Row]:
    """Returns the rows of a tab-separated file, its header among them.

    Quotes are characters like any other. Blank lines at the end of a table of
    several columns are no rows.

    Raises:
        UserError: see `read_lines`.
    """
    lines = [text for _, text in read_lines(path, advice)]
    return _literal(lines, "\t", path)


def read_quoted_table(
    path: str, advice: str, delimiter: str, log: Callable[[str], None]
) -> list[Row]:
    """Returns the rows of a table, its header first, all equally long.

    Fields may be quoted as the csv module quotes them, and then hold
    delimiters and line ends. Where that cannot be, or would join lines though
    every line is a row as it stands, all quotes are characters like any other:
    a text may begin with one, and no row is to vanish in it. `say` takes a
    line on what was done where either may be meant.

    Raises:
        UserError: see `read_lines`; for a row with more or fewer fields than
            the header, file and line are named.
    """
    lines = [text for _, text in read_lines(path, advice)]
    literal = _literal(lines, delimiter, path)
    fault = _wrong_width(literal, delimiter)
    if any(f.startswith('"') for row in literal for f in row.fields):
        rows, quoted, misquoted = _unquoted(lines, delimiter, path)
        # Of a single column every line is a row, whatever is meant.
        several = len(literal[0].fields) > 1
        if not misquoted and not fault and several and len(rows) < len(literal):
            misquoted = _first_joined(rows, literal)
        if not misquoted:
            if len(rows) < len(lines) or delimiter == "\t":
                log(
                    f"{path}: {quoted} fields are read without their quotes, "
                    f"as CSV files have them: {len(lines)} lines hold "
                    f"{len(rows)} rows, the header among them."
                )
            return rows
        if fault and fault != misquoted:
            fault = f"{misquoted} With literal quotes, {fault}"
        elif not fault:
            log(f"{misquoted} All quotes of the file are read literally.")
    if fault:
        raise UserError(fault)
    return literal


def _first_joined(rows: Sequence[Row], lines: Sequence[Row]) -> str:
    """Returns a message on the first row that takes several lines."""
    pairs = enumerate(zip(rows, lines, strict=False))
    after = (n for n, (row, line) in pairs if row.number != line.number)
    row = rows[next(after, len(rows)) - 1]
    return (
        f"{row.location}: a quoted field would join it with the next line, and "
        "every line is a row by itself."
    )


def _literal(lines: Sequence[str], delimiter: str, path: str) -> list[Row]:
    rows = [
        Row(text.split(delimiter), number, path)
        for number, text in enumerate(lines, start=1)
    ]
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
                f"{row.location}: {len(row.fields)} {name}-separated fields "
                f"where {width} are needed: "
                f"{delimiter.join(row.fields)[:60]!r}."
            )
    return ""


def _unquoted(
    lines: Sequence[str], delimiter: str, path: str
) -> tuple[list[Row], int, str]:
    """Returns rows, how many fields are quoted, and what speaks against it."""
    # Not csv.reader, whose limit of 131,072 characters in a field can only be
    # raised for the whole process.
    field = re.compile(
        rf'(?:"([^"]*+(?:""[^"]*+)*+)"|((?!")[^{delimiter}\n]*+))'
        rf"([{delimiter}\n])"
    )
    text = "".join(f"{line}\n" for line in lines)
    rows: list[Row] = []
    fields: list[str] = []
    position = quoted = 0
    begin = line = 1
    while position < len(text):
        match = field.match(text, position)
        if not match:
            fault = (
                f"{path}, line {line}: a field begins with a quote, and no "
                "quote ends it."
            )
            return rows, quoted, fault
        position = match.end()
        inside, plain, end = match.groups()
        quoted += inside is not None
        fields.append(plain if inside is None else inside.replace('""', '"'))
        line += match[0].count("\n")
        if end == delimiter:
            continue
        rows.append(Row(fields, begin, path))
        fields, begin = [], line
    rows = _without_blank_end(rows)
    return rows, quoted, _wrong_width(rows, delimiter)
