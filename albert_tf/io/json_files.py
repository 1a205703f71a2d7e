"""JSON documents: read within bounds and strictly, written atomically."""

import contextlib
import json
import math
import os
import stat
from collections.abc import Iterator
from typing import Any

from albert_tf.config import UserError, require, shown
from albert_tf.io import files
from albert_tf.io.encoding import refuse_pointer

# The largest size of JSON documents that users bring: a configuration with
# 65,536 labels, or a vocabulary.
MAX_JSON_BYTES = 16 << 20


def object_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object; ValueError for a duplicate key."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {shown(name)} appears twice")
        found[name] = value
    return found


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"the number {shown(text)} is not finite")
    return float(text)


def read_at_most(
    path: str | os.PathLike[str], limit: int | None, file_system: Any = files
) -> bytes:
    """Returns the bytes of a file, of which there are at most `limit`, if any.

    `file_system` is a module with `files.open`, and a limit needs `files.size`.

    Raises:
        UserError: when the file is missing, cannot be read, is no regular
            file, is larger, or is a pointer of Git LFS.
    """
    try:
        # Opening a pipe would wait for its writer, and a device has no end.
        if not files.is_remote(path):
            mode = os.stat(path).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise UserError(f"{path} is a pipe or a device, not a file.")
        with file_system.open(path) as file:
            if limit is None:
                return file.read()
            content = file.read(limit + 1)
            # The reported size may be too small.
            size = max(file_system.size(path), len(content))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}.") from None
    require(
        size <= limit, f"{path} has {size} bytes; more than {limit} is refused."
    )
    refuse_pointer(str(path), content)
    return content


def read_json(
    path: str | os.PathLike[str],
    *,
    limit: int | None = MAX_JSON_BYTES,
    advice: str = "",
    file_system: Any = files,
) -> dict[str, Any]:
    """Returns the JSON object in a file; see `read_at_most`, `parse_json`.

    `advice` ends the message of a UserError.
    """
    with _advising(advice):
        return parse_json(read_at_most(path, limit, file_system), str(path))


def read_json_list(
    path: str | os.PathLike[str],
    *,
    limit: int | None = MAX_JSON_BYTES,
    advice: str = "",
) -> list[Any]:
    """Returns the JSON list in a file, as `read_json` an object."""
    with _advising(advice):
        value = _parsed(read_at_most(path, limit), str(path))
        require(isinstance(value, list), f"{path} is not a JSON list.")
    return value


@contextlib.contextmanager
def _advising(advice: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise UserError(f"{error} {advice}".rstrip()) from None


def parse_json(content: bytes, name: str) -> dict[str, Any]:
    """Returns a JSON object; `name` is that of its source in messages.

    Raises:
        UserError: when it is not UTF-8, not JSON or not an object, nested too
            deeply, has a key twice, or holds NaN, Infinity or a number too
            large for a float.
    """
    value = _parsed(content, name)
    require(isinstance(value, dict), f"{name} is not a JSON object.")
    return value


def _parsed(content: bytes, name: str) -> Any:
    try:
        return json.loads(
            content.decode("utf-8"),
            object_pairs_hook=object_of_unique_keys,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except RecursionError:
        raise UserError(f"{name} is nested too deeply.") from None
    except ValueError as error:
        raise UserError(f"{name} is not valid JSON: {error}.") from None


def write_json(
    path: str | os.PathLike[str], value: Any, *, file_system: Any = files
) -> None:
    """Writes JSON under a temporary name, flushes it to disk and renames.

    `file_system` is a module with `files.replacing`.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with file_system.replacing(path) as file:
        file.write(f"{text}\n".encode())
