"""The rows of JSON files: a line for each object, or an array of objects."""

import bisect
import contextlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from albert_tf.config import UserError, require, shown
from albert_tf.tasks.bad_rows import RowError
from albert_tf.tasks.formats.json_values import (
    JSON_FAULTS,
    Number,
    parse_line,
    parsed,
    shown_json,
)
from albert_tf.tasks.formats.record import Record

# The first line of an array of objects.
_ARRAY_START = re.compile(r"\s*\[\s*(\{|\]?\s*$)")
_EMPTY_ARRAY = re.compile(r"\s*\[\s*\]")
# Python refuses numbers of very many digits; here only their text counts.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
# The keys of df.to_json(orient="split").
_SPLIT = {"columns", "index", "data"}
Line = TypeVar("Line", bound=tuple)


def starts_array(line: str) -> bool:
    """Returns whether a line is the first of an array of objects."""
    return bool(_ARRAY_START.match(line))


def json_record(line: tuple[str, str]) -> Record:
    """Returns the record of a line of JSON, given as location and text."""
    location, text = line
    value = parse_line(location, text, Number)
    if not isinstance(value, dict):
        raise RowError(
            location, "expected an object", f", got {shown_json(value)}"
        )
    # Names are stripped like those of tables, which --columns can name.
    stripped = {name.strip(): cell for name, cell in value.items()}
    return Record(stripped if len(stripped) == len(value) else value, location)


def object_lines(lines: Iterator[Line]) -> Iterator[Line]:
    """Returns the lines of a file with an object in each.

    A line begins with its location and its text. Raises UserError where one
    object has all rows, or several lines. All lines are read if the first is no
    JSON.
    """
    head = list(itertools.islice(lines, 1))
    if not head:
        return lines
    location, text = head[0][:2]
    value = value_or_none(text)
    fault = _fault_of_one(value)
    if value is None and text.lstrip()[:1] == "{":
        head += lines
        whole = value_or_none("\n".join(line[1] for line in head))
        fault = _fault_of_one(whole)
        if not fault and (whole is not None or text.strip() == "{"):
            fault = "that has several lines; jq -c . puts it in one"
    elif fault:
        head += itertools.islice(lines, 1)
        # Otherwise other lines are like this one.
        fault = fault if len(head) == 1 else ""
    require(
        not fault,
        f"{location}: expected a JSON object in each line, or an array of "
        f"objects, got one {fault}.",
    )
    return itertools.chain(head, lines)


def value_or_none(text: str) -> Any:
    """Returns the value in a text; None also where it is not JSON."""
    with contextlib.suppress(*JSON_FAULTS):
        return parsed(text)


def _fault_of_one(value: Any) -> str:
    """Returns the advice on an object that has the rows of a file, or ""."""
    if not isinstance(value, dict) or not value:
        return ""
    for key, rows in value.items():
        if _are_rows(key, rows, [v for k, v in value.items() if k != key]):
            return (
                f"object with the rows as {shown(key)}; jq -c "
                f"'.[{json.dumps(key)}][]' writes them as lines"
            )
    if value.keys() == _SPLIT or all(
        isinstance(v, dict) for v in value.values()
    ):
        return (
            "object for the file; pandas writes lines with df.to_json(path, "
            "orient='records', lines=True)"
        )
    return ""


def _are_rows(key: str, value: Any, others: Sequence[Any]) -> bool:
    """Returns whether a value in an object is a list of rows.

    An object that is a row has a text beside it, or a list of words.
    """
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, dict) for row in value)
        and (
            key == "data" or not any(isinstance(o, str | list) for o in others)
        )
    )


def array_elements(
    lines: Iterable[tuple[str, str]],
) -> Iterator[tuple[str, str]]:
    """Yields the first line's location and the text of each element.

    Elements of a single line are numbered. `lines` are the locations and texts
    of an array's. Raises UserError, with the location, for what is not JSON
    between or after the elements.
    """
    locations, texts = zip(*lines, strict=True)
    text = "\n".join(texts)
    line_ends = [*itertools.accumulate(len(line) + 1 for line in texts)]

    def fault(position: int, reason: str) -> UserError:
        return UserError(f"{location(position)}: expected JSON ({reason}).")

    def location(position: int) -> str:
        return locations[bisect.bisect(line_ends, position)]

    mark, end = ",", text.index("[")
    if empty := _EMPTY_ARRAY.match(text):
        mark, end = "]", empty.end() - 1
    numbers = itertools.count(1)
    while mark == ",":
        start = _after_blanks(text, end + 1)
        try:
            _, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise fault(error.pos, error.msg) from None
        except RecursionError as error:
            raise fault(start, str(error)) from None
        # Line feeds are between tokens alone, so that an element is a line of
        # JSON lines.
        place = location(start)
        if len(locations) == 1:
            place += f" (element {next(numbers)})"
        yield place, text[start:end].replace("\n", " ")
        end = _after_blanks(text, end)
        mark = text[end : end + 1]
        if mark not in (",", "]"):
            raise fault(end, "expected a comma or ] after an element")
    end = _after_blanks(text, end + 1)
    if end < len(text):
        raise fault(end, "expected nothing after the array")


def _after_blanks(text: str, start: int) -> int:
    places = range(start, len(text))
    return next((n for n in places if not text[n].isspace()), len(text))
