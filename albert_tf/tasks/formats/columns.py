"""Examples of users' own files, by the names of their columns."""

import collections
import re
from collections.abc import Sequence
from typing import Any

from albert_tf.config import listed, require, shown
from albert_tf.tasks.bad_rows import RowError
from albert_tf.tasks.examples import Example, MultiLabelExample
from albert_tf.tasks.formats.record import Record, Roles
from albert_tf.tasks.formats.rows import (
    LABEL_COLUMN,
    UNNAMED,
    Rows,
    ending_of,
)
from albert_tf.tasks.formats.tables import DELIMITERS

# Columns that are the texts whatever others there are.
TEXT_COLUMNS = ("text", "text_pair")
# Names of columns that number the rows; reviewId, but not paid.
_ROW_NUMBER = re.compile(
    rf"{UNNAMED.pattern}|(?i:(.*[_ -])?(id|idx|index|guid|uuid))"
    r"|.*[a-z](Id|ID)|(?i:row([._ ]?(names?|numbers?|nr|no))?)|#"
)
# Rows of a label from which on they tell what it decides.
_FEW_ROWS = 10
# Whether an annotator accepted the labels of a row, in Prodigy's exports.
_ANSWER = "answer"
_ACCEPTED, _OTHERS = "accept", {"reject", "ignore"}


def text_examples(rows: Rows, roles: Roles, labelled: bool) -> list[Example]:
    """Returns the examples of a file: a text or a pair, and a label.

    `roles` are columns as `text` and as `label` or `number`; `labelled`
    requires the latter. Raises UserError for columns that are missing, and for
    bad rows (`Rows.settled`): what is no text, no number, empty texts or an
    empty label.
    """
    read_label = Record.label if "label" in roles else Record.number
    (label,) = columns = roles.get("label") or roles["number"]
    has_label = have_labels(rows, roles, columns, labelled)

    def example(record: Record) -> Example:
        return Example(
            record.example_texts(roles["text"]),
            read_label(record, label) if has_label else None,
            record.location,
        )

    return rows.settled(rows.apply(example))


def multi_label_examples(
    rows: Rows, roles: Roles, labelled: bool, separator: str
) -> list[MultiLabelExample]:
    """Returns the examples of a file: a text or a pair, and its labels.

    `roles` are columns as `text`, and one as `labels`, with any number of them
    (`Record.labels`), or several as `label`: each named like the label that a
    text has where it is 1. `labelled` requires the latter. Raises UserError as
    `text_examples` does.
    """
    columns = roles.get("labels") or roles["label"]
    is_labelled = have_labels(rows, roles, columns, labelled)

    def labels(record: Record) -> tuple[str, ...]:
        if "labels" in roles:
            return record.labels(columns[0], separator)
        return tuple(name for name in columns if record.truth(name))

    def example(record: Record) -> MultiLabelExample:
        return MultiLabelExample(
            record.example_texts(roles["text"]),
            labels(record) if is_labelled else None,
            record.location,
        )

    return rows.settled(rows.apply(example))


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
    columns = rows.columns

    def most_have(names: set[str]) -> list[str]:
        counts = collections.Counter(
            frozenset(names & r.values.keys()) for r in rows.records
        )
        ((most, _),) = counts.most_common(1)
        return [name for name in columns if name in most]

    names = most_have({*columns})
    readable = {
        n for n in columns if n == label or not _ROW_NUMBER.fullmatch(n)
    }
    if TEXT_COLUMNS[0] in names:
        readable = {*TEXT_COLUMNS, label}
    expected = most_have(readable)
    texts = [n for n in expected if n != label]
    require(
        (label in expected or not labelled) and len(texts) in (1, 2),
        f"{rows.head}: expected one or two columns of texts and "
        f"{label!r}, got {listed(names, 12)}; name the columns with {flags}."
        f"{_of_header(rows)}",
    )

    for name in texts if len(texts) == 2 else ():
        require(
            name in TEXT_COLUMNS or not _decides(rows.records, label, name),
            f"{rows.head}: {shown(name)} has one value in all rows of a "
            f"{shown(label)}, and would be read as a text; name the columns "
            f"with {flags}.",
        )

    def check(record: Record) -> Record:
        # Otherwise the second text of some lines would be ignored silently.
        if readable & record.values.keys() != {*expected}:
            raise RowError(
                record.location,
                f"expected the columns {listed(expected, 12)}, as most lines "
                "have (--columns names others)",
                f", got {listed(record.values, 12)}",
            )
        return record

    rows.records = rows.apply(check)
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


def have_labels(
    rows: Rows, roles: Roles, labels: Sequence[str], labelled: bool
) -> bool:
    """Returns whether a file has the columns of labels.

    Unless `labelled` requires them, columns that have none in any row, as
    those of the hub's test files, are not there; a line is logged. Leaves out
    rows whose labels an annotator did not accept. Raises UserError for a column
    that no row has; a row that lacks one is bad.
    """
    columns = rows.columns
    # Of several labels in one column there may be none.
    unknown = {"-1", "-1.0"} | ({""} if "labels" not in roles else set())
    values = (record.values.get(n) for record in rows.records for n in labels)
    have_labels = labelled or any(
        value.strip() not in unknown
        if isinstance(value, str)
        else value is not None
        for value in values
    )
    if not have_labels and (empty := [n for n in labels if n in columns]):
        rows.log(
            f"{rows.head}: {listed(empty, 12)} is empty or -1 in all rows; "
            "they are read without labels."
        )
    needed = {name for names in roles.values() for name in names}
    if not have_labels:
        needed -= set(labels)
    elif _ANSWER not in needed:
        _keep_accepted(rows)
    missing = needed.difference(columns)
    require(
        not missing,
        f"{rows.head}: expected the column "
        f"{shown(min(missing, default=''))}, got {listed(columns, 12)}; name "
        f"the columns with --columns, or rename them.{_of_header(rows)}",
    )

    def check(record: Record) -> Record:
        if missing := needed - record.values.keys():
            raise RowError(
                record.location,
                f"expected the column {shown(min(missing))}",
                f", got {listed(record.values, 12)}",
            )
        return record

    rows.records = rows.apply(check)
    return have_labels


def _of_header(rows: Rows) -> str:
    """Returns a sentence on the header of a table; "" of another form."""
    if ending_of(rows.head.rpartition(":")[0]) not in DELIMITERS:
        return ""
    return (
        " The first line names the columns of a table; where it is a row, put "
        "a line with their names in front."
    )


def _keep_accepted(rows: Rows) -> None:
    """Leaves out, and logs, the rows of other answers than Prodigy's accept.

    Rows without an answer, from elsewhere, stay. A column of other values is
    none of Prodigy's.
    """
    answers = [record.values.get(_ANSWER) for record in rows.records]
    counts = collections.Counter(str(a) for a in answers if a not in (None, ""))
    others = counts.keys() & _OTHERS
    if not others or counts.keys() - {_ACCEPTED, *_OTHERS}:
        return
    described = listed(f"{name} {counts[name]}" for name in sorted(others))
    require(
        _ACCEPTED in counts,
        f"{rows.head}: no row has {_ANSWER}={_ACCEPTED}; got {described}.",
    )
    rows.log(
        f"{rows.head}: rows are left out that have another {_ANSWER} than "
        f"{_ACCEPTED}: {described}."
    )
    rows.records = [
        record
        for record, answer in zip(rows.records, answers, strict=True)
        if answer not in _OTHERS
    ]
