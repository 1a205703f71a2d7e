"""JSON data files: a value, or one in each line, checked against a schema."""

import bisect
import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from albert_tf.config import UserError, shown
from albert_tf.io.json_files import object_of_unique_keys
from albert_tf.tasks.bad_rows import RowError
from albert_tf.tasks.formats.tables import read_lines

_TYPES = {
    int: "a whole number",
    str: "a string",
    list: "a list",
    dict: "an object",
}
_SHOWN_CHARACTERS = 60
# The first line of an array of objects.
_ARRAY_START = re.compile(r"\s*\[\s*(\{|$)")
_DECODER = json.JSONDecoder()
# The keys of df.to_json(orient="split").
_SPLIT = {"columns", "index", "data"}
Line = TypeVar("Line", bound=tuple)
# What the json module raises, and for values nested too deeply.
_FAULTS = (ValueError, RecursionError)


def read_large_json(path: str) -> Any:
    """Returns the value in a JSON file of any size.

    Raises UserError when it cannot be read or is not JSON, and for an object
    with a duplicate key.
    """
    lines = read_lines(path, "expected a JSON file.")
    text = "\n".join(line for _, line in lines)
    try:
        return _parsed(text)
    except _FAULTS as error:
        raise UserError(f"{path}: expected JSON ({error}).") from None


def read_json_lines(path: str, advice: str) -> Iterator[tuple[str, Any]]:
    """Yields the location and the value of each line that is not blank.

    Raises UserError as `read_lines` and `parse_line` do.
    """
    for location, text in read_lines(path, advice):
        if text.strip():
            yield location, parse_line(location, text)


def starts_array(line: str) -> bool:
    """Returns whether a line is the first of an array of objects."""
    return bool(_ARRAY_START.match(line))


def object_lines(lines: Iterator[Line]) -> Iterator[Line]:
    """Yields the lines of a file with an object in each.

    A line begins with its location and its text. Raises UserError where one
    object has all rows, or several lines; then all of them are read.
    """
    head = list(itertools.islice(lines, 1))
    if head:
        location, text = head[0][:2]
        value = _value_or_none(text)
        if value is None and text.lstrip()[:1] == "{":
            head += lines
            value = _value_or_none("\n".join(line[1] for line in head))
            _refuse_one_object(location, value, has_lines=text.strip() == "{")
        elif _has_rows(value):
            head += itertools.islice(lines, 1)
            if len(head) == 1:
                _refuse_one_object(location, value, has_lines=False)
    return itertools.chain(head, lines)


def _value_or_none(text: str) -> Any:
    with contextlib.suppress(*_FAULTS):
        return _parsed(text)


def _has_rows(value: Any) -> bool:
    """Returns whether a value seems to be an object with the rows of a file."""
    return bool(_key_of_rows(value)) or _is_data_frame(value)


def _key_of_rows(value: Any) -> str:
    """Returns the key of a list of objects, "" where there is none.

    Beside it a row has a text, or a list of words.
    """
    if not isinstance(value, dict):
        return ""
    for key, rows in value.items():
        others = [other for name, other in value.items() if name != key]
        are_objects = isinstance(rows, list) and all(
            isinstance(row, dict) for row in rows
        )
        if (
            rows
            and are_objects
            and (
                key == "data"
                or not any(isinstance(o, str | list) for o in others)
            )
        ):
            return key
    return ""


def _is_data_frame(value: Any) -> bool:
    """Returns whether pandas wrote a value: by default an object of columns."""
    if not isinstance(value, dict) or not value:
        return False
    return value.keys() == _SPLIT or all(
        isinstance(column, dict) for column in value.values()
    )


def _refuse_one_object(location: str, value: Any, *, has_lines: bool) -> None:
    expected = (
        f"{location}: expected a JSON object in each line, or an array of "
        "objects, got one"
    )
    key = _key_of_rows(value)
    if key:
        raise UserError(
            f"{expected} object with the rows as {shown(key)}; jq -c "
            f"'.[{json.dumps(key)}][]' writes them as lines."
        )
    if _is_data_frame(value):
        raise UserError(
            f"{expected} object for the file; pandas writes lines with "
            "df.to_json(path, orient='records', lines=True)."
        )
    if has_lines or value is not None:
        raise UserError(
            f"{expected} that has several lines; jq -c . puts it in one."
        )


def array_elements(
    lines: Iterable[tuple[str, str]],
) -> Iterator[tuple[str, str]]:
    """Yields the first line's location and the text of each element.

    `lines` are the locations and texts of an array's. Raises UserError, with
    the location, for what is not JSON between or after the elements.
    """
    locations, texts = zip(*lines, strict=True)
    text = "\n".join(texts)
    line_ends = [*itertools.accumulate(len(line) + 1 for line in texts)]

    def fault(position: int, reason: str) -> UserError:
        return UserError(f"{location(position)}: expected JSON ({reason}).")

    def location(position: int) -> str:
        return locations[bisect.bisect(line_ends, position)]

    mark, end = ",", text.index("[")
    while mark == ",":
        start = _after_blanks(text, end + 1)
        try:
            _, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise fault(error.pos, error.msg) from None
        except RecursionError as error:
            raise fault(start, str(error)) from None
        # Between tokens alone, so that an element is a line of JSON lines.
        yield location(start), text[start:end].replace("\n", " ")
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


def parse_line(
    location: str, text: str, number: Callable[[str], Any] | None = None
) -> Any:
    """Returns the value in a line.

    `number` converts the text of a number; None: to int or float. With it NaN,
    which JSON has not, is null, as Python writes that of data frames. Raises
    RowError for a line that is not JSON or has a duplicate key.
    """
    try:
        return _parsed(text, number)
    except _FAULTS as error:
        raise RowError(location, "expected JSON", f" ({error})") from None


def _parsed(text: str, number: Callable[[str], Any] | None = None) -> Any:
    return json.loads(
        text,
        parse_int=number,
        parse_float=number,
        parse_constant=number and (lambda t: None if t == "NaN" else number(t)),
        object_pairs_hook=object_of_unique_keys,
    )


def check(value: Any, schema: Any, location: str) -> None:
    """Raises UserError, with the path of the fault, unless a value fits.

    A schema is a type of _TYPES or a tuple of them, `[schema]` for lists, or
    `{key: schema}` for objects; a key that ends with "?" is optional, and
    further keys are allowed.
    """
    if fault := _fault(value, schema):
        raise UserError(f"{location}: {fault.lstrip('.: ')}.")


def _fault(value: Any, schema: Any) -> str:
    """Returns the first fault with its path, or ""."""
    types: Any = schema if isinstance(schema, type | tuple) else type(schema)
    # For Python true and false are whole numbers.
    if not isinstance(value, types) or isinstance(value, bool):
        expected = " or ".join(
            name for type_, name in _TYPES.items() if issubclass(type_, types)
        )
        return f": expected {expected}, got {shown_json(value)}"
    if isinstance(schema, list):
        for number, item in enumerate(value):
            if fault := _fault(item, schema[0]):
                return f"[{number}]{fault}"
    elif isinstance(schema, dict):
        for key, inner in schema.items():
            name = key.removesuffix("?")
            if name not in value:
                if name == key:
                    return f": expected the key {name!r}"
            elif fault := _fault(value[name], inner):
                return f".{name}{fault}"
    return ""


def shown_json(value: Any) -> str:
    """Returns a value for a message: one line, never a long one.

    Bytes of Parquet, which JSON has not, are as Python shows them.
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    if not text.isprintable():
        text = json.dumps(value, default=str)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[: _SHOWN_CHARACTERS - 1]}…"
