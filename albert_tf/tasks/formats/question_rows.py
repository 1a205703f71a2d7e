"""Questions as rows of columns, as the hub's data sets of SQuAD have them."""

import contextlib
import itertools
from collections.abc import Iterable
from typing import Any

from albert_tf.config import Log, shown
from albert_tf.io import files
from albert_tf.io.compression import plain_name
from albert_tf.tasks.bad_rows import RowError
from albert_tf.tasks.examples import Answer, Question
from albert_tf.tasks.formats.columns import check_columns
from albert_tf.tasks.formats.json_rows import starts_array
from albert_tf.tasks.formats.json_values import parse_line, shown_json
from albert_tf.tasks.formats.record import Record
from albert_tf.tasks.formats.rows import (
    JSON_LINES,
    PARQUET,
    read_rows,
)
from albert_tf.tasks.formats.squad import (
    distinct,
    fault_of_answers,
    read_squad,
)
from albert_tf.tasks.formats.tables import read_lines

# Extensions of files with rows; a .json may have them, or be one of SQuAD's
# own.
QUESTION_ROWS = (JSON_LINES, ".ndjson", PARQUET)
_ANSWERS = "answers"
_COLUMNS = ("context", "question", _ANSWERS)


def read_questions(path: str, labelled: bool, log: Log) -> list[Question]:
    """Returns the questions of a file in SQuAD's format, or of rows.

    Rows have the columns `context`, `question`, `answers` and perhaps `id`,
    else the number of the row. Answers are `{"text": [...], "answer_start":
    [...]}`, or a list of objects with these keys as in SQuAD, empty for a
    question without one. Rows, unlike SQuAD's format, must have them where
    `labelled`. Raises UserError as `read_squad` does.
    """
    if not _has_rows(path):
        return read_squad(path)
    rows = read_rows(path, log)
    roles = {name: [name] for name in _COLUMNS}
    answered = check_columns(
        rows, roles, [_ANSWERS], labelled, "rename the file's columns"
    )

    # Rows may share a line, and parts of a file their line numbers.
    numbers = itertools.count(1)

    def question(record: Record) -> Question:
        number = str(next(numbers))
        answers = _answers(record) if answered else None
        fault = fault_of_answers(record.values, answers or ())
        if answered and fault:
            raise RowError(record.location, fault)
        context = record.text("context")
        if not context.strip():
            raise RowError(record.location, "the context is empty")
        return Question(
            id=record.text("id") if "id" in record.values else number,
            question=record.text("question"),
            context=context,
            answers=answers,
            location=record.location,
        )

    questions = rows.apply(question)
    # No flag skips bad questions.
    rows.bad.refuse(len(questions))
    return distinct(questions, path)


def _has_rows(path: str) -> bool:
    """Returns whether a file, or directory, has rows of questions.

    In a `.json`, too, as data frames and the hub's library write them.
    """
    if plain_name(path).lower().endswith(QUESTION_ROWS) or files.isdir(path):
        return True
    lines = read_lines(path, "expected a JSON file.")
    location, first = next((n for n in lines if n[1].strip()), (path, ""))
    if starts_array(first):
        return True
    with contextlib.suppress(RowError):
        value = parse_line(location, first)
        return isinstance(value, dict) and value.keys() >= {*_COLUMNS[:2]}
    return False


def _answers(record: Record) -> tuple[Answer, ...]:
    value = record.values[_ANSWERS]
    try:
        return tuple(
            _answer(text, start) for text, start in _texts_and_starts(value)
        )
    except (KeyError, TypeError, ValueError):
        raise RowError(
            record.location,
            "expected as many strings as whole numbers in {'text': [...], "
            f"'answer_start': [...]}} as {shown(_ANSWERS)}",
            f", got {shown_json(value)}",
        ) from None


def _texts_and_starts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        texts, starts = value["text"], value["answer_start"]
        # A string would be its characters.
        if not (isinstance(texts, list) and isinstance(starts, list)):
            raise TypeError
        return zip(texts, starts, strict=True)
    # An empty string would be no answers.
    if not isinstance(value, list):
        raise TypeError
    return [(answer["text"], answer["answer_start"]) for answer in value]


def _answer(text: Any, start: Any) -> Answer:
    if not isinstance(text, str):
        raise TypeError
    return Answer(text, int(start))
