"""The rows of users' own files: tables, JSON lines and others."""

import collections
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from albert_tf.config import Log, UserError, listed, require, shown
from albert_tf.io import files
from albert_tf.io.compression import plain_name
from albert_tf.tasks.bad_rows import BadRows, RowError
from albert_tf.tasks.formats.arrow import (
    ArrowRow,
    ArrowTable,
    is_saved,
    read_parquet,
    read_saved,
)
from albert_tf.tasks.formats.class_folders import (
    TextFile,
    class_files,
    other_files,
    other_unlabelled_files,
    read_text_file,
    unlabelled_files,
)
from albert_tf.tasks.formats.json_rows import (
    array_elements,
    json_record,
    object_lines,
    starts_array,
)
from albert_tf.tasks.formats.parquet_parts import parts_in
from albert_tf.tasks.formats.record import Record
from albert_tf.tasks.formats.tables import (
    DELIMITERS,
    MARK,
    SEPARATORS,
    Row,
    own_rows,
    read_lines,
    stored_lines,
)
from albert_tf.tasks.splits import SPLIT_NAMES, WITHOUT_FLAGS, Split

LABEL_COLUMN, LABELS_COLUMN = "label", "labels"
# The column of predictions that names a text's file.
FILE_COLUMN = "file"
Made = TypeVar("Made")

JSON_LINES, PARQUET = ".jsonl", ".parquet"
# All are read as lines.
JSON_EXTENSIONS = (JSON_LINES, ".ndjson", ".json")
EXTENSIONS = (*DELIMITERS, *JSON_EXTENSIONS, PARQUET)
# Why rows may have a number more than the header has names, and the number of
# those by which this is seen.
_OF_R = " (R's write.table leaves out the name of row numbers; row.names=FALSE)"
_HEAD_ROWS = 3
_ADVICE = (
    "the first line of a table names its columns, and a line of JSON is an "
    "object."
)
# The index of a data frame: as pandas writes it, as it reads that again, once
# or more, as it makes a column of it, and as it writes it to Parquet, as
# `datasets` does; as R's readr reads it.
UNNAMED = re.compile(
    r"\s*|Unnamed: [0-9]+(\.[0-9]+)?|level_[0-9]+|__index_level_[0-9]+__"
    r"|\.\.\.[0-9]+"
)


@dataclasses.dataclass(frozen=True)
class Reading:
    """How users' own files are read.

    Attributes:
        quoting: of tables, a name of tables.QUOTING.
        skip_bad_rows: whether rows that cannot be used are skipped and
            counted; else they are an error.
        label_separator: between several labels in one text.
        split: how dev examples are held out.
    """

    quoting: str = "csv"
    skip_bad_rows: bool = False
    label_separator: str = ","
    split: Split = WITHOUT_FLAGS


AS_BY_DEFAULT = Reading()


@dataclasses.dataclass
class Rows:
    """The rows of a file, of which examples are made.

    Attributes:
        head: file and line of the header, or of the first JSON line.
        records: the rows that are not bad so far.
        bad: the others.
        reading: how the file is read.
        log: takes a line on them.
    """

    head: str
    records: list[Record]
    bad: BadRows
    reading: Reading
    log: Log

    @property
    def columns(self) -> list[str]:
        """The columns of any row, in the order of the file."""
        names = (name for record in self.records for name in record.values)
        return list(dict.fromkeys(names))

    def apply(self, make: Callable[[Record], Made]) -> list[Made]:
        """Returns the result of `make` for each row that it accepts."""
        return self.bad.apply(make, self.records)

    def settled(self, good: list[Made]) -> list[Made]:
        """Returns the results for the good rows.

        Logs the bad ones, or raises UserError (`BadRows.settle`).
        """
        self.bad.settle(len(good), self.reading.skip_bad_rows, self.log)
        return good


@dataclasses.dataclass(frozen=True)
class Opened:
    """A file with columns, whose rows are read when they are due.

    Attributes:
        head: see `Rows`.
        rows: of the file, in its form.
        record_of: returns the record of a row, or raises RowError.
        columns: those of all rows; None: each line of JSON has its own.
        header: the first row of a table, with the names of its columns.
        schema: of an Arrow file.
        num_rows: where it is known.
    """

    head: str
    rows: Iterable[Any]
    record_of: Callable[[Any], Record]
    columns: Sequence[str] | None = None
    header: Row | None = None
    schema: Any = None
    num_rows: int | None = None


def ending_of(path: str) -> str:
    """Returns the ending that says how a file is read, as `.csv`.

    That of a compressed file is that of its content, and JSON_LINES is that of
    all JSON_EXTENSIONS.
    """
    ending = os.path.splitext(plain_name(path).lower())[1]
    return JSON_LINES if ending in JSON_EXTENSIONS else ending


def has_columns(directory: str) -> bool:
    """Returns whether `open_rows` reads a directory."""
    return files.isdir(directory) and (
        is_saved(directory)
        or bool(parts_in(directory))
        or any(True for _ in class_files(directory))
    )


def open_rows(
    path: str,
    log: Log,
    reading: Reading = AS_BY_DEFAULT,
    *,
    ending: str = "",
    lines: Iterable[bytes] | None = None,
) -> Opened:
    """Opens a file or directory with columns, by its `ending`.

    Tables with a header (`.tsv`, `.csv`; `own_rows`, which logs how quotes are
    read), lines of JSON (`.jsonl`: an object in each), Parquet; a directory of
    `Dataset.save_to_disk`, with parts in Parquet, or with a folder for each
    class (columns `text` and `label`). `lines` are the content of what is no
    file, called `path`. Faults of rows are RowErrors of `record_of`: lines of
    JSON that are no object, and another number of fields than the header has.

    Raises:
        UserError: for a file that cannot be read, and duplicate columns.
    """
    ending = ending or ending_of(path)
    if ending == PARQUET or (lines is None and parts_in(path)):
        return _opened_arrow(path, read_parquet(path))
    if lines is None and files.isdir(path):
        if is_saved(path):
            return _opened_arrow(path, read_saved(path))
        return _opened_folders(path, log)
    if delimiter := DELIMITERS.get(ending):
        lines = stored_lines(path, _ADVICE) if lines is None else lines
        rows = own_rows(path, lines, _ADVICE, delimiter, reading.quoting, log)
        header = next(rows)
        head = list(itertools.islice(rows, _HEAD_ROWS))
        names, record_of = _table_records(header, head, delimiter)
        rows = itertools.chain(head, rows)
        return Opened(header.location, rows, record_of, names, header)
    return _opened_json(path, ending)


def _opened_folders(path: str, log: Log) -> Opened:
    """Opens a directory with a folder of texts for each class."""
    require(
        has_columns(path),
        f"{path} has no folders with .txt files; expected one for each class, "
        "or the name of a file.",
    )
    _report_others(path, other_files(path), log)
    if beside := [os.path.basename(f.path) for f in unlabelled_files(path)]:
        log(
            f"{path}: not read, since they lie beside the folders of the "
            f"classes: {listed(beside)}."
        )
    columns = (FILE_COLUMN, "text", LABEL_COLUMN)
    return Opened(path, class_files(path), _record_of_file, columns)


def _report_others(path: str, names: Sequence[str], log: Log) -> None:
    if names:
        log(
            f"{path}: not read, since texts are files that end in .txt: "
            f"{listed(names)}."
        )


def open_texts(path: str, log: Log) -> Opened:
    """Opens a directory with texts right in it, which have no labels.

    Raises UserError for one without such files.
    """
    found = [*unlabelled_files(path)]
    if not found:
        folders = (os.path.join(path, n) for n in sorted(files.listdir(path)))
        splits = listed(filter(has_columns, folders), longest=None)
        raise UserError(
            f"{path} has no .txt files, nor folders with them; expected these, "
            f"or the name of a file{splits and f', or of a split: {splits}'}."
        )
    _report_others(path, other_unlabelled_files(path), log)
    columns = (FILE_COLUMN, "text")
    return Opened(path, found, _record_of_file, columns, num_rows=len(found))


def _opened_json(path: str, ending: str) -> Opened:
    """Opens a file with objects in JSON, whatever its name ends with."""
    if ending not in EXTENSIONS:
        start = next(stored_lines(path, _ADVICE), b"")
        require(
            re.match(rb"(\xef\xbb\xbf)?\s*([{\[]|$)", start) is not None,
            f"{path}: expected a name that ends with "
            f"{' or '.join(EXTENSIONS)}; {_ADVICE}",
        )
    texts = (line for line in read_lines(path, _ADVICE) if line[1].strip())
    first = next(texts, None)
    if first is None:
        return Opened(path, (), json_record)
    whole = itertools.chain([first], texts)
    read = array_elements if starts_array(first[1]) else object_lines
    return Opened(first[0], read(whole), json_record)


def _opened_arrow(path: str, table: ArrowTable) -> Opened:
    def record_of(row: ArrowRow) -> Record:
        return Record(row.values, row.location)

    return Opened(
        path,
        table.rows,
        record_of,
        table.schema.names,
        schema=table.schema,
        num_rows=table.num_rows,
    )


def _record_of_file(file: TextFile) -> Record:
    try:
        text = read_text_file(file.path)
    except UserError as error:
        path = re.escape(file.path)
        fault = re.fullmatch(rf"{path}(:[0-9]+)?:? (.+)\.", str(error))
        if fault is None:
            raise
        location = f"{file.path}{fault[1] or ''}"
        raise RowError(location, fault[2]) from None
    if not text.strip():
        raise RowError(file.path, "the file has no text")
    label = {} if file.label is None else {LABEL_COLUMN: file.label}
    return Record({"text": text, **label}, file.path)


def read_rows(path: str, log: Log, reading: Reading = AS_BY_DEFAULT) -> Rows:
    """Returns the rows of a file, one good one at least; see `open_rows`.

    Logs a warning where a column has splits, as these are read as one.

    Raises:
        UserError: as `open_rows` does, and for a file without such a row.
    """
    bad = BadRows()
    opened = open_rows(path, log, reading)
    records = bad.apply(opened.record_of, opened.rows)
    found = Rows(opened.head, records, bad, reading, log)
    require(bool(records or found.settled([])), f"{path} has no examples.")
    for name in found.columns:
        _report_splits(path, found, name)
    return found


def _report_splits(path: str, rows: Rows, name: str) -> None:
    """Logs a warning if a column has the names of several splits alone."""
    values = (str(record.values.get(name)).strip() for record in rows.records)
    splits = {*itertools.chain(*SPLIT_NAMES.values())}
    counts: dict[str, int] = collections.Counter()
    for value in values:
        if value.lower() not in splits:
            return
        counts[value] += 1
    if len(counts) > 1:
        found = [f"{value} ({count})" for value, count in counts.items()]
        rows.log(
            f"WARNING: {path}: the rows of {' and '.join(found)}, as "
            f"{shown(name)} has them, are read as one; put those of each in a "
            "file that is called so."
        )


def _table_records(
    header: Row, head: Sequence[Row], delimiter: str
) -> tuple[list[str], Callable[[Row], Record]]:
    """Returns the columns, and a function that names the fields of a row.

    `head` are the first rows.
    """
    names = [name.strip() for name in header.fields]
    if names.count("") > 1:
        # pandas names them so.
        names = [name or f"Unnamed: {n}" for n, name in enumerate(names)]
    require(
        len(set(names)) == len(names),
        f"{header.location}: expected distinct columns, got "
        f"{listed(names, 12)}.",
    )

    is_of_r = all(
        len(row.fields) == len(names) + 1 and row.fields[0].isdecimal()
        for row in head
    )

    def record_of(row: Row) -> Record:
        if len(row.fields) != len(names):
            raise RowError(
                row.location,
                f"expected {len(names)} {SEPARATORS[delimiter]}-separated "
                f"fields{_OF_R if is_of_r else ''}",
                f", got {len(row.fields)}: {shown(delimiter.join(row.fields))}",
            )
        first, *others = row.fields
        # Files that begin with the mark may have been joined, behind which
        # quotes are characters.
        fields = [first.removeprefix(MARK).strip('"'), *others]
        if others and fields == header.fields:
            raise RowError(
                row.location,
                "the names of the columns again, as where files were joined",
            )
        return Record(dict(zip(names, row.fields, strict=True)), row.location)

    return names, record_of


def differs_in_case(name: str, columns: Sequence[str]) -> str:
    """Returns a question on a column of that name in other case; else ""."""
    alike = [c for c in columns if c.lower() == name.lower()]
    return f" (did you mean {shown(alike[0])}?)" if alike else ""


def about_header(rows: Rows) -> str:
    """Returns a sentence on the header of a table; "" of another form."""
    if ending_of(rows.head.rpartition(":")[0]) not in DELIMITERS:
        return ""
    return (
        " The first line names the columns of a table; where it is a row, put "
        "a line with their names in front."
    )
