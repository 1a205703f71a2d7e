"""Columns of users' own files: the examples of texts in them."""

import collections
from collections.abc import Sequence

from albert_tf.config import UserError, listed, require, shown
from albert_tf.tasks.bad_rows import RowError
from albert_tf.tasks.examples import Example, MultiLabelExample
from albert_tf.tasks.formats.record import Record, Roles
from albert_tf.tasks.formats.rows import Rows, about_header, differs_in_case

# Prodigy's column of whether an annotator accepted the labels of a row.
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
    has_label = check_columns(rows, roles, columns, labelled)

    def example(record: Record) -> Example:
        return Example(
            record.example_texts(roles["text"]),
            read_label(record, label) if has_label else None,
            record.location,
        )

    return rows.settled(rows.apply(example))


def multi_label_examples(
    rows: Rows, roles: Roles, labelled: bool
) -> list[MultiLabelExample]:
    """Returns the examples of a file: a text or a pair, and its labels.

    `roles` are columns as `text`, and one as `labels`, with any number of them
    (`Record.labels`), or several as `label`: each named like the label that a
    text has where it is 1, or x where others are empty. `labelled` requires the
    latter. Raises UserError as `text_examples` does.
    """
    columns = roles.get("labels") or roles["label"]
    is_labelled = check_columns(rows, roles, columns, labelled)
    are_ticked = (
        is_labelled and "labels" not in roles and _are_ticked(rows, columns)
    )

    def labels(record: Record) -> tuple[str, ...]:
        if "labels" in roles:
            return record.labels(columns[0], rows.reading.label_separator)
        if are_ticked:
            return tuple(name for name in columns if record.text(name).strip())
        return tuple(name for name in columns if record.truth(name))

    def example(record: Record) -> MultiLabelExample:
        return MultiLabelExample(
            record.example_texts(roles["text"]),
            labels(record) if is_labelled else None,
            record.location,
        )

    return rows.settled(rows.apply(example))


def _are_ticked(rows: Rows, columns: Sequence[str]) -> bool:
    """Returns whether cells are x or empty, and logs how they are read."""
    cells = [record.values[n] for record in rows.records for n in columns]
    texts = {"" if cell is None else str(cell).strip() for cell in cells}
    are_ticked = {text.lower() for text in texts} in ({"x"}, {"x", ""})
    if are_ticked:
        rows.log(
            f"{rows.head}: x is read as 1, an empty cell as 0, in "
            f"{listed(columns, 12)}."
        )
    return are_ticked


def check_columns(
    rows: Rows,
    roles: Roles,
    labels: Sequence[str],
    labelled: bool,
    advice: str = "name the columns with --columns, or rename them",
) -> bool:
    """Returns whether rows have labels, after a check of their columns.

    Unless `labelled` requires them, columns that have none in any row, as
    those of the hub's test files, are not there; a line is logged. Leaves out
    rows whose labels an annotator did not accept. Raises UserError for a column
    that no row has, with the `advice`; a row that lacks one is bad.
    """
    # A column of several labels may be empty: an example may have none.
    unknown = {"-1", "-1.0"} | ({""} if "labels" not in roles else set())
    labelled = labelled or _has_values(rows, labels, unknown)
    needed = {name for names in roles.values() for name in names}
    if not labelled:
        needed -= set(labels)
    elif _ANSWER not in needed:
        _keep_accepted(rows)
    columns = rows.columns
    if missing := needed.difference(columns):
        first = min(missing)
        raise UserError(
            f"{rows.head}: expected the column {shown(first)}, got "
            f"{listed(columns, 12)}{differs_in_case(first, columns)}; "
            f"{advice}.{about_header(rows)}"
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
    return labelled


def _has_values(rows: Rows, labels: Sequence[str], unknown: set[str]) -> bool:
    """Returns whether a row has a label, and logs columns without any."""
    values = (record.values.get(n) for record in rows.records for n in labels)
    found = any(
        value.strip() not in unknown
        if isinstance(value, str)
        else value is not None
        for value in values
    )
    if not found and (empty := [n for n in labels if n in rows.columns]):
        rows.log(
            f"{rows.head}: {listed(empty, 12)} is empty or -1 in all rows; "
            "they are read without labels."
        )
    return found


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
