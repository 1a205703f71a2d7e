"""JSON files as inputs of predictions: their rows, and types of their columns.

Main entries: `open_json` and `json_columns`.
"""

import collections
import contextlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.config import UserError, require
from albert_tf.prediction.line_inputs import decoded
from albert_tf.tasks.examples import Question
from albert_tf.tasks.formats.json_rows import (
    array_elements,
    json_record,
    object_lines,
    starts_array,
    value_or_none,
)
from albert_tf.tasks.formats.json_values import Number
from albert_tf.tasks.formats.record import Record
from albert_tf.tasks.formats.rows import Opened
from albert_tf.tasks.formats.squad import is_squad, squad_questions
from albert_tf.tasks.formats.tables import refuse_line_ends, stored_lines

_WHOLE_NUMBER = re.compile(r"-?[0-9]+")
_ADVICE = "expected lines of JSON."
# Whole numbers up to this one are numbers of 64 bits with a point, too.
_EXACT_DOUBLE = 2**53
# The location and text of an object, and what is wrong with them.
_Line = tuple[str, str, UserError | None]


def open_json(path: str, lines: Iterable[bytes] | None = None) -> Opened:
    """Opens a file of JSON, or the `lines` of what is no file."""
    return Opened(path, _rows(path, lines), _record_of)


def _rows(path: str, lines: Iterable[bytes] | None = None) -> Iterator[_Line]:
    """Returns the lines that are not blank, or the rows in a whole file.

    These are the elements of an array, or the questions in SQuAD's format.
    Raises UserError for a file without them, and one whose lines end with CR.
    """
    lines = iter(stored_lines(path, _ADVICE) if lines is None else lines)
    first = next(lines, b"")
    refuse_line_ends(path, first.decode("utf-8", "replace"))
    stored = decoded(itertools.chain([first], lines), path)
    found = (line for line in stored if line[1].strip())
    head = list(itertools.islice(found, 1))
    require(bool(head), f"{path} is empty.")
    text = head[0][1]
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


def _sound(rows: Iterable[_Line]) -> Iterator[tuple[str, str]]:
    """Yields the location and text of lines; raises the error of one."""
    for location, text, error in rows:
        if error:
            raise error
        yield location, text


def _record_of(line: _Line) -> Record:
    """Returns the record of a decoded line; raises UserError."""
    location, text, error = line
    if error:
        raise error
    return json_record((location, text))


def json_columns(path: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Returns the columns of any line of a file of JSON, and of most lines.

    Each of the former has the type that holds all its values: int64, double,
    bool or string.
    """
    types: dict[str, set[str]] = {}
    counts: collections.Counter[tuple[str, ...]] = collections.Counter()
    for line in _rows(path):
        with contextlib.suppress(UserError):
            values = _record_of(line).values
            counts[tuple(values)] += 1
            for name, value in values.items():
                types.setdefault(name, set()).update(_types(value))
    found = [(name, _common_type(own)) for name, own in types.items()]
    return found, [*next(iter(counts.most_common(1)), ((), 0))[0]]


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
