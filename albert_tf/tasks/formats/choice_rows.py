"""Choices in tables with columns: a context, its choices, the right one."""

import collections
import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

from albert_tf.config import listed, require, shown
from albert_tf.tasks.bad_rows import RowError
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.formats.columns import check_columns
from albert_tf.tasks.formats.race import LETTERS
from albert_tf.tasks.formats.record import Record, Roles
from albert_tf.tasks.formats.rows import Rows

# The place of an answer in a question, which may touch a word; others are
# within identifiers.
_BLANK = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")


class _Choices(NamedTuple):
    """The choices of a row, and their names by which a label may call them."""

    record: Record
    texts: list[str]
    names: list[str]

    def by_label(self) -> dict[str, int]:
        """Returns the choices by number, letter and name."""
        # A choice may be called like the number of another.
        found = {str(number): number for number in range(len(self.texts))}
        found |= dict(zip(LETTERS, found.values(), strict=False))
        if len(self.names) == len(self.texts):
            found |= {name: n for n, name in enumerate(self.names)}
        return found

    def by_text(self) -> dict[str, int]:
        """Returns the choices by their texts, without those of equal text."""
        texts = [text.strip() for text in self.texts]
        return {t: n for n, t in enumerate(texts) if texts.count(t) == 1}


def choice_examples(
    rows: Rows, roles: Roles, labelled: bool
) -> list[ChoiceExample]:
    """Returns the examples of a file: a context, choices, the right one.

    The label is the name of a choice (`Record.choices`), or else the number of
    the choice from 0, or its letter from A; in a file where more labels are
    texts of their row's choices, that text. Ids are the numbers of the examples
    from 0.

    `roles` are columns as `context`, as `choice` (see `Record.choices`), as
    `label`, which `labelled` requires, and perhaps as `question`, which is
    combined with every choice (`with_question`).

    Raises:
        UserError: for columns that are missing, and for bad rows
            (`Rows.settled`): what is no text, neither context nor question, a
            label that is no choice, and fewer than two choices or another
            number than in most rows.
    """
    (label,) = roles["label"]
    has_label = check_columns(rows, roles, [label], labelled)
    found = rows.apply(lambda record: _choices(record, roles["choice"]))
    counts = collections.Counter(len(row.texts) for row in found)
    usual = max(counts, key=counts.__getitem__, default=0)
    are_texts = has_label and _labels_are_texts(rows, found, label)
    if not are_texts:
        _refuse_numbers_from_1(rows, found, label, usual)

    def example(row: _Choices) -> ChoiceExample:
        if len(row.texts) != usual:
            raise RowError(
                row.record.location,
                f"expected {usual} choices, as most rows have",
                f", got {len(row.texts)}",
            )
        right = None
        if has_label:
            right = _choice_number(row, label, are_texts)
            if not row.texts[right].strip():
                raise RowError(row.record.location, "the right choice is empty")
        context, texts = with_question(row.record, roles, row.texts)
        return ChoiceExample(context, tuple(texts), right, row.record.location)

    examples = rows.settled(rows.bad.apply(example, found))
    return [
        dataclasses.replace(example, id=str(number))
        for number, example in enumerate(examples)
    ]


def with_question(
    record: Record, roles: Roles, choices: list[str]
) -> tuple[str, list[str]]:
    """Returns the context of a row, and its choices after its question.

    These are as they are where no column has the role `question`.
    """
    columns = [*roles["context"], *roles.get("question", ())]
    context, *questions = record.example_texts(columns)
    for question in questions:
        choices = [_with_choice(question, choice) for choice in choices]
    return context, choices


def _with_choice(question: str, choice: str) -> str:
    """Returns a question with a choice in its blanks, or else after it."""
    filled, number = _BLANK.subn(lambda _: choice, question)
    return filled if number else f"{question} {choice}"


def _choices(record: Record, columns: Sequence[str]) -> _Choices:
    texts, names = record.choices(columns)
    return _Choices(record, texts, names)


def _refuse_numbers_from_1(
    rows: Rows, found: Sequence[_Choices], label: str, usual: int
) -> None:
    """Raises UserError where the labels are the numbers from 1, and none is 0.

    `usual` is the number of choices. A choice may be called like a number.
    """
    numbers = {
        right
        for row in found
        if (right := str(row.record.values.get(label)).strip()) not in row.names
    }
    require(
        not usual
        or "0" in numbers
        or not numbers >= {str(n + 1) for n in range(usual)},
        f"{rows.head}: the numbers of the right choices as {label!r} are those "
        f"from 1 to {usual}, expected them from 0; subtract 1 from each.",
    )


def _labels_are_texts(
    rows: Rows, found: Sequence[_Choices], label: str
) -> bool:
    """Returns whether more labels are texts of choices than stand for them.

    Raises:
        UserError: where as many are, and do not stand for the same choices.
    """
    readings = [
        (row.by_text().get(value), row.by_label().get(value))
        for row in found
        for value in [str(row.record.values[label]).strip()]
    ]
    texts = sum(text is not None for text, _ in readings)
    others = sum(other is not None for _, other in readings)
    require(
        texts != others or all(text == other for text, other in readings),
        f"{rows.head}: the labels as {label!r} are texts of choices and "
        "numbers or names of others; expected labels that are only one of "
        "these, such as letters from A where no choice is a letter.",
    )
    return texts > others


def _choice_number(row: _Choices, column: str, is_text: bool) -> int:
    """Returns the number of the choice that a label stands for."""
    label = row.record.label(column)
    choices = row.by_text() if is_text else row.by_label()
    if label in choices:
        return choices[label]
    expected = "the text of one choice"
    if not is_text:
        number, names = len(row.texts), row.names
        expected = f"a number from 0 to {number - 1}, a letter from A"
        if len(names) == number:
            expected += f", or one of {listed(names, 12)}"
    raise RowError(
        row.record.location,
        f"expected {expected} as the label",
        f", got {shown(label)}",
    )
