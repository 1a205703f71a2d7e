"""SQuAD's format: questions on paragraphs, with answers cut from them."""

from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import UserError, require
from albert_tf.tasks.examples import Answer, Question
from albert_tf.tasks.formats.json_values import (
    check,
    read_large_json,
    shown_json,
)

# SQuAD's ids are strings; other files in its format often have numbers. Test
# files have no answers.
_QUESTION = {
    "id": (str, int),
    "question": str,
    "answers?": [{"text": str, "answer_start": int}],
}
_FILE = {"data": [{"paragraphs": [{"context": str, "qas": [_QUESTION]}]}]}


def read_squad(path: str) -> list[Question]:
    """Returns the questions of a file, in its order.

    Raises UserError for a file that cannot be read, is of another form or
    without a question, and for a duplicate id.
    """
    return squad_questions(read_large_json(path), path)


def is_squad(value: Any) -> bool:
    """Returns whether a value in JSON is a file in SQuAD's format."""
    articles = value.get("data") if isinstance(value, dict) else None
    return (
        isinstance(articles, list)
        and bool(articles)
        and isinstance(articles[0], dict)
        and "paragraphs" in articles[0]
    )


def squad_questions(content: Any, path: str) -> list[Question]:
    """Returns the questions in the content of a file; see `read_squad`."""
    check(content, _FILE, path)
    questions = []
    for a, article in enumerate(content["data"]):
        for p, paragraph in enumerate(article["paragraphs"]):
            for q, row in enumerate(paragraph["qas"]):
                location = f"{path}: data[{a}].paragraphs[{p}].qas[{q}]"
                questions.append(_question(row, paragraph["context"], location))
    return distinct(questions, path)


def distinct(questions: list[Question], path: str) -> list[Question]:
    """Returns questions with different ids, one at least, of a file.

    Raises UserError for others.
    """
    require(bool(questions), f"{path} has no questions.")
    known = set()
    for question in questions:
        if question.id in known:
            raise UserError(
                f"{question.location}: duplicate id; expected each id once."
            )
        known.add(question.id)
    return questions


def fault_of_answers(row: Mapping[str, Any], answers: Sequence[Answer]) -> str:
    """Returns the fault of a row whose `is_impossible` contradicts its answers.

    Empty where there is none.
    """
    is_impossible = row.get("is_impossible")
    # Other programs write numbers, which rows have as texts.
    expected = ("false", "0", "0.0") if answers else ("true", "1", "1.0")
    if is_impossible is None or str(is_impossible).lower() in expected:
        return ""
    return (
        f"is_impossible is {shown_json(is_impossible)} with {len(answers)} "
        "answers; correct one or the other"
    )


def _question(row: dict[str, Any], context: str, location: str) -> Question:
    answers = None
    if "answers" in row:
        answers = tuple(
            Answer(answer["text"], answer["answer_start"])
            for answer in row["answers"]
        )
        if fault := fault_of_answers(row, answers):
            raise UserError(f"{location}: {fault}.")
    id_ = str(row["id"])
    return Question(
        id=id_,
        question=row["question"],
        context=context,
        answers=answers,
        location=f"{location} (id {shown_json(id_)})",
    )
