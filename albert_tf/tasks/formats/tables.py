"""Tables: the benchmarks', whose quotes are literal, and users' own."""

import codecs
import contextlib
import csv
import dataclasses
import io
import itertools
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from albert_tf.config import Log, UserError, lookup, require
from albert_tf.io.compression import open_plain, suffix_of
from albert_tf.io.encoding import HEAD_BYTES, refuse_other_than_text

# Separators by the extension of a file.
DELIMITERS = {".tsv": "\t", ".csv": ","}
SEPARATORS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "vertical bar"}

# The byte-order mark of UTF-8.
MARK = codecs.BOM_UTF8.decode()
# The sign for the end of a file that DOS programs write.
END_OF_FILE = b"\x1a"
_LINE_END = re.compile(r"\r+\n?|\n")
# Stands for a CR within a line, which the csv module takes for its end. UTF-8
# has no such character.
_INNER_CR = "\ud800"
# The first line of objects, or of an array of them.
JSON_START = re.compile(r'\s*(\[\s*$|(\[\s*)?\{\s*("|$))')
# Programs that unpack files, by the ends of their names.
_UNPACK = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
# Lines by which the separator is checked.
_HEAD_LINES = 200


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table: its fields, not stripped, and its file and line.

    `location` is its first line of `num_lines`, and `text` these lines with
    their ends.
    """

    fields: list[str]
    location: str
    num_lines: int = 1
    text: str = ""


def stored_lines(path: str, advice: str) -> Iterator[bytes]:
    """Yields the lines of a file, unpacked, with their ends.

    Without END_OF_FILE.
    Raises UserError for a file that is missing or cannot be read, with `advice`
    for what is no file; and for text in UTF-16 or UTF-32.
    """
    try:
        with open_plain(path) as file:
            refuse_other_than_text(path, file.peek(HEAD_BYTES))
            for line in file:
                # The last line alone ends without LF.
                if line := line.removesuffix(END_OF_FILE):
                    yield line
    except OSError as error:
        reason = error.strerror or str(error)
        is_missing = isinstance(error, FileNotFoundError)
        more = "." if is_missing else f"; {advice}"
        raise UserError(f"{path}: {reason}{more}") from None


def decoded_lines(
    path: str, lines: Iterable[bytes], advice: str
) -> Iterator[str]:
    """Yields the lines as text, without the byte-order mark of UTF-8.

    Raises UserError, to which `advice` is appended, where there is no text;
    for a line that is not UTF-8; and for text in UTF-16 or UTF-32.
    """
    number = 0
    for number, line in enumerate(lines, start=1):
        if number == 1:
            refuse_other_than_text(path, line)
            line = line.removeprefix(codecs.BOM_UTF8)
            require(bool(line), f"{path} is empty; {advice}")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}:{number}: byte {error.start} "
                f"(0x{line[error.start]:02x}) is not UTF-8; convert the file, "
                # In Latin 1 quotes of Windows would be control characters.
                "for example with iconv -f cp1252 -t utf-8."
            ) from None
    require(number > 0, f"{path} is empty; {advice}")


def read_lines(path: str, advice: str) -> Iterator[tuple[str, str]]:
    """Yields the location and the text of each line of a UTF-8 file.

    No line has a byte-order mark at its start.
    Raises UserError as `stored_lines` and `decoded_lines` do, and for a file
    whose lines end with CR alone.
    """
    lines = decoded_lines(path, stored_lines(path, advice), advice)
    for number, line in enumerate(lines, start=1):
        if number == 1:
            refuse_line_ends(path, line)
        # Files that begin with the mark may have been joined.
        text = line.removeprefix(MARK).removesuffix("\n").rstrip("\r")
        yield f"{path}:{number}", text


def refuse_line_ends(path: str, first: str) -> None:
    """Raises UserError if lines end as in classic Mac OS: with CR alone."""
    require(
        "\n" in first or "\r" not in first.rstrip("\r"),
        f"{path}: its lines end with CR alone; convert the file, for example "
        "with tr '\\r' '\\n'.",
    )


def reading_command(command: str, path: str) -> str:
    """Returns a shell's command that gives another the content of a file."""
    if path == "-":
        return command
    if program := _UNPACK.get(suffix_of(path.lower())):
        return f"{program} -dc {shlex.quote(path)} | {command}"
    return f"{command} < {shlex.quote(path)}"


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


def own_rows(
    path: str,
    lines: Iterable[bytes],
    advice: str,
    delimiter: str,
    quoting: str,
    log: Log,
) -> Iterator[Row]:
    """Yields the rows of a user's table, its header first, of any width.

    `lines` are those of the file `path`, and `quoting` is a name of QUOTING.
    Lines end with LF, CR LF or, where the first one does, with CR. Blank lines
    are no rows, except those below the header of a single column. Logs at the
    end how quotes are read if a field begins with one, and that backslashes
    escape nothing if a field ends in one.

    Raises:
        UserError: as `decoded_lines` does; for quotes unlike those of CSV, and
            for a table that has another separator.
    """
    choice = lookup(QUOTING, quoting, "quoting")
    notes = _Notes(path, delimiter, choice.described)
    marked = _marked(decoded_lines(path, lines, advice))
    head = list(itertools.islice(marked, _HEAD_LINES))
    _check_separator(path, head, delimiter, choice.read)
    width = 0
    noted = notes.of_lines(itertools.chain(head, marked))
    for row in choice.read(path, noted, delimiter):
        if width == 1 and not row.fields:
            row = dataclasses.replace(row, fields=[""])
        if row.fields:
            width = width or len(row.fields)
            notes.add(row)
            yield row
    require(width > 0, f"{path} is empty; {advice}")
    notes.write(log)


class _Notes:
    """Collects what the log says of a table, while its rows are read."""

    def __init__(self, path: str, delimiter: str, described: str) -> None:
        self._path, self._described = path, described
        self._opened = re.compile(rf'(?:^|[{delimiter}\r])"')
        self._has_quotes = False
        self._num_lines = self._num_rows = self._num_escaped = 0
        self._longest: Row | None = None
        self._escaped = ""

    def of_lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yields the lines."""
        for line in lines:
            self._num_lines += 1
            if not self._has_quotes and '"' in line:
                self._has_quotes = bool(self._opened.search(line))
            yield line

    def add(self, row: Row) -> None:
        self._num_rows += 1
        if self._longest is None or row.num_lines > self._longest.num_lines:
            # A row's text may be long.
            self._longest = dataclasses.replace(row, fields=[], text="")
        if any(field.endswith("\\") for field in row.fields):
            self._num_escaped += 1
            self._escaped = self._escaped or row.location

    def write(self, log: Log) -> None:
        if self._has_quotes:
            line = (
                f"{self._path}: quotes are read {self._described}; "
                f"{self._num_lines} lines hold {self._num_rows} rows, with "
                "the header"
            )
            if self._longest and self._longest.num_lines > 1:
                begin = self._longest.location.rpartition(":")[2]
                line += (
                    f"; the longest, of {self._longest.num_lines} lines, "
                    f"begins in line {begin}"
                )
            log(f"{line}.")
        if self._escaped:
            log(
                f"{self._escaped}: a field ends in a backslash (rows with such "
                f"fields: {self._num_escaped}), which is a character like "
                "others here; where it was to escape a separator or line end, "
                "write the table with quotes."
            )


def _marked(lines: Iterator[str]) -> Iterator[str]:
    """Yields lines with marks in place of a CR within them.

    Such a CR is part of a field; pandas and R write it without quotes. But
    where the first line ends with CR, as in classic Mac OS, others may end so
    too.
    """
    first = next(lines)
    end = _LINE_END.search(first)
    lines = itertools.chain([first], lines)
    if end and not end[0].endswith("\n"):
        for line in lines:
            yield from io.StringIO(line, newline="")
        return
    for line in lines:
        yield _LINE_END.sub(_mark, line) if "\r" in line else line


def _mark(found: re.Match[str]) -> str:
    is_end = found[0].endswith("\n") or found.end() == len(found.string)
    return found[0] if is_end else _INNER_CR * len(found[0])


def _read_csv(path: str, lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    # The default limit of a field is 131,072 characters.
    csv.field_size_limit(sys.maxsize)
    taken: list[str] = []

    def noted() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line

    reader = csv.reader(noted(), delimiter=delimiter, strict=True)
    first = 1
    try:
        for fields in reader:
            after = reader.line_num + 1
            fields = [field.replace(_INNER_CR, "\r") for field in fields]
            text = "".join(taken).replace(_INNER_CR, "\r")
            taken.clear()
            yield Row(fields, f"{path}:{first}", after - first, text)
            first = after
    except csv.Error as error:
        fault = str(error).replace("\t", "\\t")
        raise UserError(
            f"{path}:{reader.line_num}: not quoted as in CSV ({fault}), in the "
            f"row that begins in line {first}; within quotes a quote is "
            "written twice. --quoting=none reads all quotes literally."
        ) from None


def _read_literal(
    path: str, lines: Iterable[str], delimiter: str
) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        line = line.replace(_INNER_CR, "\r")
        text = line.rstrip("\r\n")
        fields = text.split(delimiter) if text else []
        yield Row(fields, f"{path}:{number}", 1, line)


class _Quoting(NamedTuple):
    """A way to read quotes; `described` completes a sentence on it."""

    read: Callable[[str, Iterable[str], str], Iterator[Row]]
    described: str


QUOTING = {
    "csv": _Quoting(
        _read_csv, "as in CSV (--quoting=none reads them literally)"
    ),
    "none": _Quoting(_read_literal, "literally (--quoting=none)"),
}


def _check_separator(
    path: str,
    head: Sequence[str],
    delimiter: str,
    read: Callable[[str, Iterable[str], str], Iterator[Row]],
) -> None:
    """Raises UserError where another separator splits header and first row.

    And where the first of the lines, `head`, is JSON or for Excel alone.
    """
    require(
        not JSON_START.match(head[0]),
        f"{path}:1: expected a line that names the columns of a table, got "
        "JSON; name the file *.jsonl.",
    )
    if found := re.match(r'"?(sep=.)"?[\r\n]', head[0]):
        raise UserError(
            f"{path}:1: only Excel reads the line {found[1]!r}; remove it, so "
            "that the first line names the columns."
        )

    def widths(delimiter: str) -> list[int]:
        found = []
        # With another separator the quotes may not be those of CSV.
        with contextlib.suppress(UserError):
            rows = (r for r in read(path, head, delimiter) if r.fields)
            for row in itertools.islice(rows, 2):
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
            command = (
                'python -c "import csv, sys; '
                "csv.writer(sys.stdout).writerows(csv.reader(open(0, "
                f"encoding='utf-8-sig', newline=''), delimiter='{other}'))\""
            )
            advice = (
                "convert the file, for example with "
                f"{reading_command(command, path)} > new.csv"
            )
        raise UserError(
            f"{path}: the separator looks like a {name} ({other!r}), expected "
            f"a {SEPARATORS[delimiter]}; {advice}."
        )
