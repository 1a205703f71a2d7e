"""Rows that cannot be used: all listed in one error, or skipped and counted."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from albert_tf.config import Log, UserError, listed

Given = TypeVar("Given")
Made = TypeVar("Made")

# The reason that a row without any text is bad.
EMPTY = "the text is empty"
# Rows that a message lists.
_LISTED = 20


class RowError(UserError):
    """What is wrong with one row, while others of its file can be used.

    Attributes:
        location: of the row.
        reason: the same words for every row with this fault.
        detail: what stands in this row, such as ", got 'x'"; or "".
    """

    def __init__(self, location: str, reason: str, detail: str = "") -> None:
        # All arguments, or no other process could unpickle it.
        super().__init__(location, reason, detail)
        self.location, self.reason, self.detail = location, reason, detail

    def __str__(self) -> str:
        return f"{self.location}: {self.reason}{self.detail}."


class BadRows:
    """Collects the faults of rows while these are read, step by step.

    `unit` is the name of what is counted.
    """

    def __init__(self, unit: str = "rows") -> None:
        self._unit = unit
        self._errors: list[RowError] = []

    def apply(
        self, make: Callable[[Given], Made], rows: Iterable[Given]
    ) -> list[Made]:
        """Returns the result of `make` for each row that it accepts."""
        made = []
        for row in rows:
            try:
                made.append(make(row))
            except RowError as error:
                self._errors.append(error)
        return made

    def refuse(self, num_good: int) -> None:
        """Raises UserError if there are bad rows, beside `num_good` others."""
        if self._errors:
            raise UserError(self._described(num_good))

    def settle(self, num_good: int, skip: bool, log: Log) -> None:
        """Logs which rows are skipped, or raises UserError.

        It does so for bad rows unless they are to be skipped, and where no
        good row remains.
        """
        if not num_good:
            self.refuse(num_good)
        if self._errors and not skip:
            raise UserError(
                f"{self._described(num_good)} --skip_bad_rows skips such rows."
            )
        if self._errors:
            log(f"{self._described(num_good)} Skipped: {len(self._errors)}.")

    def _described(self, num_good: int) -> str:
        """Returns one line: the rows by their faults, the first with details.

        The faults come in the order of the file.
        """
        num_rows = num_good + len(self._errors)
        if len(self._errors) == 1:
            return str(self._errors[0])
        errors = sorted(self._errors, key=_line)
        places = [_path_and_line(error.location) for error in errors]
        paths = {path if line else "" for path, line in places}
        shared = paths.pop() if len(paths) == 1 else ""
        by_reason: dict[str, list[str]] = {}
        for error, (_, line) in zip(errors, places, strict=True):
            place = line if shared else error.location
            entries = by_reason.setdefault(error.reason, [])
            entries.append(f"{place}{error.detail}")
        left = _LISTED
        parts = []
        for reason, entries in by_reason.items():
            parts.append(f"{reason} ({_some(entries, left, bool(shared))})")
            left = max(left - len(entries), 0)
        return (
            f"{shared}{': ' if shared else ''}{len(errors)} of {num_rows} "
            f"{self._unit} are bad: {'; '.join(parts)}."
        )


def made_of_all(
    make: Callable[[Given], Made], examples: Sequence[Given]
) -> list[Made]:
    """Returns the result of `make` for each example.

    Raises UserError, one for all, for those that it refuses.
    """
    bad = BadRows("examples")
    made = bad.apply(make, examples)
    bad.refuse(len(made))
    return made


def _some(entries: Sequence[str], most: int, are_lines: bool) -> str:
    """Returns the number of entries and the first of them."""
    if not most:
        return str(len(entries))
    lines = ("line " if len(entries) == 1 else "lines ") if are_lines else ""
    separator = "; " if any("," in entry for entry in entries) else ", "
    # The values in them have been cut.
    text = listed(entries, most, separator=separator, longest=None)
    return f"{len(entries)}: {lines}{text}"


def _line(error: RowError) -> int:
    return int(_path_and_line(error.location)[1] or 0)


def _path_and_line(location: str) -> tuple[str, str]:
    """Returns the file of a row, and the number of its line or ""."""
    path, _, line = location.rpartition(":")
    # That of a text in a folder is a path alone, which may begin with gs:.
    return (path, line) if line.isdecimal() else (location, "")
