"""JSON as data files hold it: one value, or one in each line, checked."""

import collections
import json
from collections.abc import Callable, Iterator
from typing import Any

from albert_tf.config import UserError, shown
from albert_tf.io import files
from albert_tf.io.encoding import refuse_utf16
from albert_tf.tasks.formats.tables import read_lines

_KINDS = {
    int: "a whole number",
    str: "a string",
    list: "a list",
    dict: "an object",
}
# Of a value in a message.
_SHOWN = 60


def read_large_json(path: str) -> Any:
    """Returns what a JSON file of any size holds.

    Raises:
        UserError: when it cannot be read or is no JSON; the line is named.
            Also for an object with two members of one name.
    """
    try:
        with files.open(path) as file:
            content = file.read()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.") from None
    refuse_utf16(path, content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start} is not UTF-8; convert the file first."
        ) from None
    return _value(text, path)


def read_json_lines(
    path: str, advice: str, number: Callable[[str], Any] | None = None
) -> Iterator[tuple[str, Any]]:
    """Yields file and line, for messages, and the value of each line.

    Lines of white space alone hold none, and are passed over.

    Args:
        path: of the file.
        advice: what to do when it cannot be read.
        number: what becomes of the text of a number; None: int or float.

    Raises:
        UserError: naming file and line, for a file that is missing or empty,
            or a line that is not UTF-8 or no JSON. Also for an object with
            two members of one name.
    """
    for line, text in read_lines(path, advice):
        if text.strip():
            value = _value(text, path, line, number)
            yield f"{path}, line {line}", value


def _value(
    text: str,
    path: str,
    line: int | None = None,
    number: Callable[[str], Any] | None = None,
) -> Any:
    """Returns the value of a line, or of a whole file."""
    place = f"{path}, line {line}" if line else path
    try:
        return json.loads(
            text,
            parse_int=number,
            parse_float=number,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}, line {line or error.lineno}: it is not valid JSON "
            f"({error.msg})."
        ) from None
    except KeyError as error:
        raise UserError(
            f"{place}: an object has {shown(error.args[0])} twice; leave one "
            "of them."
        ) from None
    except ValueError:
        # Python reads no whole number of more than 4,300 digits.
        raise UserError(f"{place} has a number with too many digits.") from None
    except RecursionError:
        raise UserError(f"{place}: it is nested too deep.") from None


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object; raises KeyError for a name that comes twice."""
    found = dict(members)
    if len(found) < len(members):
        names = collections.Counter(name for name, _ in members)
        raise KeyError(names.most_common(1)[0][0])
    return found


def member(value: Any, name: str, kind: type, place: str) -> Any:
    """Returns a member of an object.

    Args:
        value: what is to be an object.
        name: of the member.
        kind: that it is to be of: str, int, list or dict.
        place: of the object, for messages.

    Raises:
        UserError: for what is no object, lacks it or has another kind there.
    """
    if not isinstance(value, dict):
        raise UserError(f"{place} is {shown_json(value)}, and no object.")
    if name not in value:
        raise UserError(f"{place} has no {name!r}; the format has one.")
    return of_kind(value[name], kind, f"{place}: {name}")


def of_kind(value: Any, kind: type, name: str) -> Any:
    """Returns a value as it is.

    Raises:
        UserError: when it is not of a kind: str, int, list or dict.
    """
    # For Python a truth value is a whole number.
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(
            f"{name} is {shown_json(value)}, and must be {_KINDS[kind]}."
        )
    return value


def shown_json(value: Any) -> str:
    """Returns a value for a message: one line, never a long one."""
    text = json.dumps(value, ensure_ascii=False)
    if not text.isprintable():
        text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
