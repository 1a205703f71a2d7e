"""What users read: errors of one line, values and names in them, a log."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

# Takes a line for the user.
Log = Callable[[str], None]
# The longest name in a message, and the longest list of names.
_NAME_CHARACTERS, _LIST_CHARACTERS = 60, 300


def silent(line: str) -> None:
    """Takes a line that is logged elsewhere, or by no one."""


class UserError(ValueError):
    """A user's mistake, in one line: setting, value, allowed values."""

    # Keras puts the arguments of a call around the message of an error that
    # comes out of it, unless the error has this mark that it has been done.
    _keras_call_info_injected = True


def require(condition: bool, message: str) -> None:
    """Raises UserError with `message` unless `condition` holds."""
    if not condition:
        raise UserError(message)


def shown(value: Any) -> str:
    """Returns a value for an error message: one line, never a long one."""
    # Arrays and data frames have several lines.
    text = " ".join(repr(value).splitlines())
    return text if len(text) <= 80 else f"{text[:77]}..."


def cut(text: str, most: int) -> str:
    """Returns a text of at most so many characters, with an ellipsis if cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shown_metric(value: float) -> str:
    """Returns a metric for a table: four decimals, or digits if it is small."""
    # Errors are in the square of the labels' unit, whatever that is.
    return f"{value:.4g}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"


def listed(
    names: Iterable[str],
    most: int = 3,
    *,
    separator: str = ", ",
    longest: int | None = _NAME_CHARACTERS,
) -> str:
    """Returns names for a message: one line, the first few of many.

    There are `most` of them, fewer if they are long, each cut to `longest`. Of
    several, one that holds the separator is quoted, unless `longest` is None.
    """
    names = list(names)
    mark = separator.strip() if longest and len(names) > 1 else ""
    parts: list[str] = []
    for name in names[:most]:
        name = name[:longest]
        is_plain = name.isprintable() and not (mark and mark in name)
        parts.append(name if is_plain else repr(name))
        if len(separator.join(parts)) > _LIST_CHARACTERS:
            # One at least.
            parts = parts[:-1] or parts
            break
    more = len(names) - len(parts)
    text = separator.join(parts)
    return f"{text} and {more} others" if more > 0 else text


def markdown_table(
    header: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    are_numbers: Sequence[bool] = (),
) -> str:
    """Returns a table in Markdown; columns of numbers are right-aligned."""
    marks = [
        "---:" if n else "---" for n in are_numbers or [False] * len(header)
    ]
    return "\n".join(
        f"| {' | '.join(map(_cell, row))} |" for row in (header, marks, *rows)
    )


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


@contextlib.contextmanager
def optional_page(path: str, log: Log, complete: str) -> Iterator[None]:
    """Logs whatever fails while a page is written beside complete results.

    Args:
        path: of the page.
        log: takes the warning.
        complete: the results without it, such as "the model is complete".
    """
    try:
        yield
    except Exception as error:
        log(
            f"WARNING: {path} was not written "
            f"({type(error).__name__}: {error}); {complete}."
        )
