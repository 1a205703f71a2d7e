"""Inputs of predictions: lines of text, tables and JSON lines.

Main entries: `read_lines`, `read_table` and `read_sentences`, which return
`Inputs`. What is wrong with one is its `error`, and the others are read.
"""

import codecs
import collections
import contextlib
import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from albert_tf.config import Log, UserError, listed, require
from albert_tf.io import files
from albert_tf.io.compression import open_plain, plain_name
from albert_tf.io.encoding import refuse_other_than_text
from albert_tf.prediction.forms import (
    CHOICES,
    PAIR,
    QUESTION,
    Form,
    Input,
)
from albert_tf.prediction.input_columns import (
    UNREAD_ROLES,
    check_columns,
    columns_of_texts,
    joined_words,
    texts_of,
)
from albert_tf.tasks.examples import Question
from albert_tf.tasks.formats.conll import CONLLU, count_columns, read_conll
from albert_tf.tasks.formats.json_rows import (
    array_elements,
    object_lines,
    starts_array,
    value_or_none,
)
from albert_tf.tasks.formats.json_values import Number
from albert_tf.tasks.formats.record import Record, Roles
from albert_tf.tasks.formats.rows import (
    EXTENSIONS,
    JSON_LINES,
    Reading,
    ending_of,
    has_columns,
    json_record,
    open_rows,
    open_texts,
)
from albert_tf.tasks.formats.squad import is_squad, squad_questions
from albert_tf.tasks.formats.tables import DELIMITERS, Row, refuse_line_ends

# Names of columns by which the header of a table is recognised.
_NAMES = {n for f in (PAIR, QUESTION, CHOICES) for n in f.columns} | {
    *("label", "sentence", "sentence1", "sentence2")
}


# Ends of names of files with columns, by the values of --input_format.
INPUT_FORMATS = {e.removeprefix("."): ending_of(f"a{e}") for e in EXTENSIONS}
# What the name of a column looks like.
_NAME = re.compile(r"[^\W\d][\w.-]*")
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")
# Lines by which a file of words is recognised, and the fewest that suffice.
_HEAD, _FEW_WORDS = 200, 5
# Whole numbers up to this one are numbers of 64 bits with a point, too.
_EXACT_DOUBLE = 2**53


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of inputs: what is needed to write its rows again.

    Attributes:
        path: of the file.
        ending: of its name, which says its form; "" for a directory.
        columns: those of all rows; None: each line of JSON has its own.
        header: its first row, of .tsv and .csv.
        schema: of Arrow's forms.
        quoting: of its fields, a name of tables.QUOTING.
        has_mark: whether it begins with the byte-order mark of UTF-8.
    """

    path: str
    ending: str
    columns: Sequence[str] | None = None
    header: Row | None = None
    schema: Any = None
    quoting: str = Reading.quoting
    has_mark: bool = False


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Lines or rows to predict for.

    Attributes:
        read: yields them in a form, each read when it is due; takes this, and
            the columns of the model's task, as `--columns` has them.
        num: of them, if it is known.
        table: that has them, if any.
    """

    read: Callable[[Form, Sequence[str]], Iterator[Input]]
    num: int | None = None
    table: Table | None = None


def table_ending(path: str, input_format: str = "auto") -> str | None:
    """Returns the ending that says how columns are read; None: lines.

    It is "" for a directory.
    """
    if input_format != "auto":
        return INPUT_FORMATS.get(input_format)
    if path != "-" and files.isdir(path):
        return ""
    ending = ending_of(path)
    return ending if ending in EXTENSIONS else None


def decoded(
    lines: Iterable[bytes], source: str
) -> Iterator[tuple[str, str, UserError | None]]:
    """Yields the location and text of each line, and what is wrong with it.

    Raises UserError for text in UTF-16 or UTF-32.
    """
    for number, line in enumerate(lines, start=1):
        location = f"{source}, line {number}"
        if number == 1:
            refuse_other_than_text(source, line)
            line = line.removeprefix(codecs.BOM_UTF8)
        error = None
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as fault:
            text = line.decode("utf-8", "replace")
            error = UserError(
                f"{location}: byte {fault.start} is not UTF-8; convert it "
                "first."
            )
        yield location, text.rstrip("\n").rstrip("\r"), error


def read_lines(
    lines: Iterable[bytes], source: str, *, may_have_header: bool
) -> Inputs:
    """Returns the inputs in lines of text.

    The first line is read at once. Raises UserError where there is none, where
    it is in UTF-16, where lines end with CR alone, where it is the header of a
    table, and where a model of such files gets a file of words.
    """
    lines = iter(lines)
    head = next(lines, None)
    if head is None:
        raise UserError(f"{source} is empty.")
    found = decoded(itertools.chain([head], lines), source)
    first = next(found)
    if may_have_header:
        refuse_line_ends(source, head.decode("utf-8", "replace"))
        _refuse_header(first[1], source, ())

    def inputs(form: Form, columns: Sequence[str] = ()) -> Iterator[Input]:
        head = [first]
        if may_have_header:
            _refuse_header(first[1], source, columns)
            if source != "-" and (width := _width_of_words(columns)):
                head += itertools.islice(found, _HEAD - 1)
                _refuse_words([line[1] for line in head], source, width)
        for location, text, error in itertools.chain(head, found):
            texts = tuple(text.split("\t", form.tabs)) if form.tabs else (text,)
            if error:
                yield Input(texts, error)
            else:
                yield form.checked(texts, location)

    return Inputs(inputs)


def _refuse_header(line: str, source: str, columns: Sequence[str]) -> None:
    """Raises UserError for a line that names columns.

    It names nothing but known columns; or several, among them a known one in
    letters of any case; or those of the model's texts, which are among
    `columns`.
    """
    names = [n.strip(' "') for n in re.split(r"[\t,;]", line)]
    pairs = [column.partition("=")[::2] for column in columns]
    of_model = {name for role, name in pairs if role not in UNREAD_ROLES}
    is_header = _NAMES.issuperset(names)
    is_header |= bool(of_model) and of_model.issubset(names)
    if len(names) > 1 and all(map(_NAME.fullmatch, names)):
        is_header |= not _NAMES.isdisjoint(map(str.lower, names))
    require(
        not is_header,
        f"{source}, line 1: {listed(names, 12)} is the header of a table, and "
        f"no text; end the file's name with {' or '.join(EXTENSIONS)}, or "
        "give --input_format, to read its columns; --input_format=text reads "
        "the line as a text.",
    )


def _width_of_words(columns: Sequence[str]) -> int:
    """Returns the fewest columns of a task's files of words; 0: it has none."""
    roles = dict(column.split("=", 1) for column in columns)
    if "word" not in roles:
        return 0
    return max(2, *(int(number) + 1 for number in roles.values()))


def _refuse_words(head: Sequence[str], source: str, width: int) -> None:
    """Raises UserError where all of the first lines have as many columns.

    At least `width`, with blank lines between sentences; lines of text have now
    more words and now fewer.
    """
    lines = [line for line in head if line.strip() and line[0] != "#"]
    number, *others = {len(line.split()) for line in lines} or {0}
    # Blank lines at both ends divide nothing.
    is_divided = "\n\n" in "\n".join(map(str.strip, head)).strip()
    if (
        len(lines) >= _FEW_WORDS
        and is_divided
        and not others
        and number >= width
    ):
        raise UserError(
            f"{source}: its first lines have {number} columns each, as in a "
            "file of words; --input_format=conll tags its words, and "
            "--input_format=text reads each line as a text."
        )


def read_sentences(
    path: str, columns: Sequence[str] = (), log: Log = print
) -> Inputs:
    """Returns the sentences of a file in CoNLL's format, without its tags.

    Words are in the column that `columns` (as `word=1`) or else the model's
    task names; where neither does, in the first, and a line says so.
    """
    chosen = _word_column(columns)

    def inputs(form: Form, of_model: Sequence[str] = ()) -> Iterator[Input]:
        roles = dict(column.split("=", 1) for column in of_model)
        word = chosen or roles.get("word")
        if word is None and not plain_name(path).lower().endswith(CONLLU):
            number = count_columns(path)
            if number > 1:
                log(
                    f"{path}: the words are read from column 0 of {number}, "
                    "as the model has no record of another; --columns=word=1 "
                    "reads the next."
                )
        for found in read_conll(path, int(word or 0), tagged=False):
            try:
                text = joined_words(found.words, found.location)
            except UserError as error:
                yield Input((" ".join(found.words),), error)
            else:
                yield form.checked((text,), found.location)

    return Inputs(inputs)


def _word_column(columns: Sequence[str]) -> str | None:
    """Returns the number in `word=1`, None where no column is named."""
    word = None
    for column in columns:
        role, _, name = map(str.strip, column.partition("="))
        require(
            role in ("word", "tag")
            and re.fullmatch(r"-?[0-9]{1,3}", name) is not None,
            "--columns: expected word=N with the number of the words' column, "
            f"got {column!r}.",
        )
        if role == "word":
            word = name
    return word


def read_table(
    path: str,
    columns: Sequence[str],
    quoting: str,
    log: Log,
    *,
    ending: str | None = None,
    lines: Iterable[bytes] | None = None,
) -> Inputs:
    """Returns the inputs in a table, JSON lines or a directory.

    A table is read once to check it, and again row by row. `columns` are
    `role=name`; by default those of the model's task where the first row has
    them, or those of the form, or `label` and the others. `quoting` is a name
    of tables.QUOTING. `lines` are the content of what is no file; they are
    read once.
    """
    ending = ending_of(path) if ending is None else ending
    if ending == JSON_LINES:
        return _json_inputs(path, columns, log, lines)
    reading = Reading(quoting)
    num = None
    mark = False
    if lines is None and ending in DELIMITERS:
        require(
            not files.exists(path) or files.isfile(path),
            f"{path} is no regular file, and a table is read twice; give "
            f"--input=- with --input_format={ending.removeprefix('.')}.",
        )
        checked = open_rows(path, log, reading, ending=ending)
        num = sum(1 for _ in checked.rows)
        log = _silent
        with open_plain(path) as file:
            mark = file.peek(3).startswith(codecs.BOM_UTF8)
    if lines is None and files.isdir(path) and not has_columns(path):
        # New texts have no classes.
        opened = open_texts(path, log)
    else:
        opened = open_rows(path, log, reading, ending=ending, lines=lines)
    table = Table(
        path,
        ending,
        opened.columns,
        opened.header,
        opened.schema,
        quoting,
        mark,
    )

    def inputs(form: Form, of_model: Sequence[str] = ()) -> Iterator[Input]:
        def roles_of(first: Record) -> Roles:
            roles = columns_of_texts(first, form, columns, of_model, path, log)
            # All rows have the same columns.
            check_columns(first, roles)
            return roles

        return _inputs(opened.rows, opened.record_of, form, roles_of)

    return Inputs(inputs, num or opened.num_rows, table)


def _silent(line: str) -> None:
    """Takes a line that was logged before."""


def _json_inputs(
    path: str,
    columns: Sequence[str],
    log: Log,
    lines: Iterable[bytes] | None,
) -> Inputs:
    if lines is None:
        require(files.size(path) > 0, f"{path} is empty.")

    def inputs(form: Form, of_model: Sequence[str] = ()) -> Iterator[Input]:
        def roles_of(first: Record) -> Roles:
            return columns_of_texts(first, form, columns, of_model, path, log)

        with contextlib.ExitStack() as stack:
            stored = lines or stack.enter_context(open_plain(path))
            rows = _json_rows(stored, path)
            yield from _inputs(rows, _json_record, form, roles_of)

    return Inputs(inputs, table=Table(path, JSON_LINES))


def json_columns(path: str) -> dict[str, str]:
    """Returns the columns of any line of a file of JSON lines.

    Each has the type that holds all its values: int64, double, bool or string.
    """
    types: dict[str, set[str]] = {}
    with open_plain(path) as file:
        for row in _json_rows(file, path):
            with contextlib.suppress(UserError):
                for name, value in _json_record(row, Number).values.items():
                    types.setdefault(name, set()).update(_types(value))
    return {name: _common_type(found) for name, found in types.items()}


def _types(value: Any) -> list[str]:
    """Returns the type of a value in JSON; none of null, which all hold.

    That of a whole number beyond those of double is also "long".
    """
    if value is None:
        return []
    if isinstance(value, bool):
        return ["bool"]
    if not isinstance(value, Number):
        return ["string"]
    if not _WHOLE_NUMBER.fullmatch(value):
        return ["double"]
    # More digits than a type has are kept as a text.
    size = abs(int(value)) if len(value) <= len(str(-(2**63))) else 2**63
    if size <= _EXACT_DOUBLE:
        return ["int64"]
    return ["int64", "long"] if size < 2**63 else ["string"]


def _common_type(types: set[str]) -> str:
    if types == {"int64", "double"}:
        return "double"
    types = types - {"long"}
    return types.pop() if len(types) == 1 else "string"


def _json_rows(
    lines: Iterable[bytes], path: str
) -> Iterator[tuple[str, str, UserError | None]]:
    """Returns the lines that are not blank, or the rows in a whole file.

    These are the elements of an array, or the questions in SQuAD's format.
    """
    found = (line for line in decoded(lines, path) if line[1].strip())
    head = list(itertools.islice(found, 1))
    text = head[0][1] if head else ""
    if starts_array(text):
        rows = itertools.chain(head, found)
        return ((*element, None) for element in array_elements(_sound(rows)))
    value = value_or_none(text)
    if is_squad(value) or (value is None and text.lstrip()[:1] == "{"):
        head += found
        value = value_or_none("\n".join(line[1] for line in head))
        if is_squad(value):
            # A byte that is not UTF-8 was replaced in the text of its line.
            collections.deque(_sound(head), 0)
            return map(_question_row, squad_questions(value, path))
    return object_lines(itertools.chain(head, found))


def _question_row(question: Question) -> tuple[str, str, None]:
    """Returns a question as a line of JSON, in the form of the hub's rows."""
    row: dict[str, Any] = {
        "id": question.id,
        "question": question.question,
        "context": question.context,
    }
    if question.answers is not None:
        row["answers"] = {
            "text": [answer.text for answer in question.answers],
            "answer_start": [answer.start for answer in question.answers],
        }
    return question.location, json.dumps(row, ensure_ascii=False), None


def _sound(
    rows: Iterable[tuple[str, str, UserError | None]],
) -> Iterator[tuple[str, str]]:
    """Yields the location and text of lines; raises what is wrong with one."""
    for location, text, error in rows:
        if error:
            raise error
        yield location, text


def _json_record(
    line: tuple[str, str, UserError | None],
    number: Callable[[str], str] = str,
) -> Record:
    """Returns the record of a decoded line; raises UserError."""
    location, text, error = line
    if error:
        raise error
    return json_record((location, text), number)


def _inputs(
    rows: Iterable[Any],
    record_of: Callable[[Any], Record],
    form: Form,
    roles_of: Callable[[Record], Roles],
) -> Iterator[Input]:
    """Yields the inputs of rows.

    `record_of` returns the record of a row, or raises UserError; `roles_of`
    the columns of all, by the first of them.
    """
    roles: Roles = {}
    for row in rows:
        try:
            record = record_of(row)
        except UserError as error:
            # A line of JSON that is no object has its text, and no row.
            is_line = record_of is _json_record
            yield Input(row[1:2], error) if is_line else Input((), error, row)
            continue
        roles = roles or roles_of(record)
        try:
            check_columns(record, roles)
            texts = tuple(texts_of(record, roles))
        except UserError as error:
            yield Input((), error, row)
        else:
            found = form.checked(texts, record.location)
            yield dataclasses.replace(found, row=row)
