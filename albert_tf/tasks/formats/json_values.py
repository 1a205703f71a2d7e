"""JSON data files: a value, or one in each line, checked against a schema."""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

from albert_tf.config import UserError
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


class Number(str):
    """The text of a number in JSON, as it is written."""

    __slots__ = ()


# Errors that the json module raises, the second for values nested too deeply.
JSON_FAULTS = (ValueError, RecursionError)


def read_large_json(path: str) -> Any:
    """Returns the value in a JSON file of any size.

    Raises UserError when it cannot be read or is not JSON, and for an object
    with a duplicate key.
    """
    lines = read_lines(path, "expected a JSON file.")
    text = "\n".join(line for _, line in lines)
    try:
        return parsed(text)
    except JSON_FAULTS as error:
        raise UserError(f"{path}: expected JSON ({error}).") from None


def read_json_lines(path: str, advice: str) -> Iterator[tuple[str, Any]]:
    """Yields the location and the value of each line that is not blank.

    Raises UserError as `read_lines` and `parse_line` do.
    """
    for location, text in read_lines(path, advice):
        if text.strip():
            yield location, parse_line(location, text)


def parse_line(
    location: str, text: str, number: Callable[[str], Any] | None = None
) -> Any:
    """Returns the value in a line.

    `number` converts the text of a number; None: to int or float. With it NaN,
    which JSON has not, is null, as Python writes that of data frames. Raises
    RowError for a line that is not JSON or has a duplicate key.
    """
    try:
        return parsed(text, number)
    except JSON_FAULTS as error:
        raise RowError(location, "expected JSON", f" ({error})") from None


def parsed(text: str, number: Callable[[str], Any] | None = None) -> Any:
    """Returns the value in a text; raises JSON_FAULTS, see `parse_line`."""
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


def json_text(value: Any, *, ensure_ascii: bool = False) -> str:
    """Returns a value as JSON, in which each Number is as it was written.

    It is a text where the value is nested too deeply for Python's functions.
    Bytes of Parquet, which JSON has not, are as Python shows them.
    """
    if isinstance(value, Number):
        return str(value)
    inner = functools.partial(json_text, ensure_ascii=ensure_ascii)
    with contextlib.suppress(RecursionError):
        if isinstance(value, list):
            return f"[{', '.join(map(inner, value))}]"
        if isinstance(value, dict):
            pairs = [f"{inner(key)}: {inner(v)}" for key, v in value.items()]
            return f"{{{', '.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=ensure_ascii, default=str)


def shown_json(value: Any) -> str:
    """Returns a value for a message: one line, never a long one."""
    text = json_text(value)
    if not text.isprintable():
        text = json_text(value, ensure_ascii=True)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[: _SHOWN_CHARACTERS - 1]}…"
