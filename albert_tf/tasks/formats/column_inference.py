"""Which columns of a file are its texts and its label."""

import collections
import re
from collections.abc import Sequence
from typing import Any

from albert_tf.config import listed, require, shown
from albert_tf.tasks.bad_rows import RowError
from albert_tf.tasks.formats.record import Record, Roles
from albert_tf.tasks.formats.rows import (
    LABEL_COLUMN,
    UNNAMED,
    Rows,
    about_header,
    differs_in_case,
)
from albert_tf.tasks.number_labels import is_number

# Columns that are the texts whatever others there are.
TEXT_COLUMNS = ("text", "text_pair")
# Names of columns that number the rows; reviewId, but not paid.
_ROW_NUMBER = re.compile(
    rf"{UNNAMED.pattern}|(?i:(.*[_ -])?(id|idx|index|guid|uuid))"
    r"|.*[a-z](Id|ID)|(?i:row([._ ]?(names?|numbers?|nr|no))?)|#"
)
# Rows of a label from which on they tell what it decides.
_FEW_ROWS = 10


def infer_columns(
    rows: Rows,
    *,
    labelled: bool = True,
    label: str = LABEL_COLUMN,
    flags: str = "--columns",
) -> Roles:
    """Returns the columns of a file: one or two of texts, and that of labels.

    The texts are `text` and perhaps `text_pair`; in a file without `text` they
    are all columns but numbers of rows: those called `id`, `idx` and the like,
    and an index without a name. Columns are those that most rows have, and
    lines of JSON that differ in what is read are bad rows.
    Logs a line on the columns that are ignored, and on a pair. Raises UserError
    for other columns than these, and for one that repeats the label beside a
    text; its message has the `flags` that name them.
    """
    names = _most_have(rows, {*rows.columns})
    readable = {
        n for n in rows.columns if n == label or not _ROW_NUMBER.fullmatch(n)
    }
    if TEXT_COLUMNS[0] in names:
        readable = {*TEXT_COLUMNS, label}
    expected = _most_have(rows, readable)
    texts = [n for n in expected if n != label]
    near = "" if label in names else differs_in_case(label, names)
    require(
        (label in expected or not labelled) and len(texts) in (1, 2),
        f"{rows.head}: expected one or two columns of texts and "
        f"{label!r}, got {listed(names, 12)}{near}; name the columns with "
        f"{flags}.{about_header(rows)}",
    )
    if len(texts) == 2:
        _refuse_other_than_texts(rows, label, texts, flags)
    _check_each(rows, readable, expected)
    if ignored := [n for n in rows.columns if n not in (*texts, label)]:
        rows.log(
            f"{rows.head}: columns that are ignored: "
            f"{', '.join(map(shown, ignored[:12]))}; --columns names others."
        )
    if len(texts) == 2:
        rows.log(
            f"{rows.head}: {listed(texts, 12)} are read as pairs; --columns "
            "names others."
        )
    return {"text": texts, label: [label]}


def _most_have(rows: Rows, names: set[str]) -> list[str]:
    """Returns those of some names that most rows have, in the file's order."""
    counts = collections.Counter(
        frozenset(names & record.values.keys()) for record in rows.records
    )
    ((most, _),) = counts.most_common(1)
    return [name for name in rows.columns if name in most]


def _refuse_other_than_texts(
    rows: Rows, label: str, texts: Sequence[str], flags: str
) -> None:
    """Raises UserError for a column of numbers, or one that the label decides.

    They are rarely texts: the length of one, the label's other name.
    """
    for name in texts:
        require(
            name in TEXT_COLUMNS or not _decides(rows.records, label, name),
            f"{rows.head}: {shown(name)} has one value in all rows of a "
            f"{shown(label)}, and would be read as a text; name the columns "
            f"with {flags}.",
        )
        require(
            name in TEXT_COLUMNS or not _are_numbers(rows.records, name),
            f"{rows.head}: {shown(name)} has numbers in all rows, and would "
            f"be read as a text; name the columns with {flags}.",
        )


def _decides(records: Sequence[Record], label: str, name: str) -> bool:
    """Returns whether all rows of a label have one value in another column.

    As the label's name has beside its number. Few rows may by chance.
    """
    found: dict[str, Any] = {}
    for record in records:
        key, value = str(record.values.get(label)), record.values.get(name)
        if found.setdefault(key, value) != value:
            return False
    return len(found) * _FEW_ROWS <= len(records)


def _are_numbers(records: Sequence[Record], name: str) -> bool:
    """Returns whether all rows, which are not few, have numbers in a column."""
    values = (str(record.values.get(name)) for record in records)
    return len(records) >= _FEW_ROWS and all(map(is_number, values))


def _check_each(rows: Rows, readable: set[str], expected: list[str]) -> None:
    """Makes rows with others of the readable columns bad.

    Otherwise the second text of some lines would be ignored silently.
    """

    def check(record: Record) -> Record:
        if readable & record.values.keys() != {*expected}:
            raise RowError(
                record.location,
                f"expected the columns {listed(expected, 12)}, as most lines "
                "have (--columns names others)",
                f", got {listed(record.values, 12)}",
            )
        return record

    rows.records = rows.apply(check)
