"""SQuAD's files: questions on paragraphs, with answers cut from them."""

from typing import Any

from albert_tf.config import UserError
from albert_tf.tasks.examples import Answer, Question
from albert_tf.tasks.formats.json_values import (
    member,
    read_large_json,
    shown_json,
)


def read_squad(path: str) -> list[Question]:
    """Returns the questions of a file, in its order.

    Raises:
        UserError: for a file that is missing, no JSON, of another form (the
            article, paragraph and question are named), without a question, or
            with an id that comes twice.
    """
    questions = []
    seen: set[str] = set()
    articles = member(read_large_json(path), "data", list, path)
    for a, article in enumerate(articles, start=1):
        place = f"{path}, article {a}"
        paragraphs = member(article, "paragraphs", list, place)
        for p, paragraph in enumerate(paragraphs, start=1):
            where = f"{place}, paragraph {p}"
            context = member(paragraph, "context", str, where)
            rows = member(paragraph, "qas", list, where)
            for q, row in enumerate(rows, start=1):
                question = _question(row, context, f"{where}, question {q}")
                if question.id in seen:
                    raise UserError(
                        f"{question.location}: there was a question with this "
                        "id before; every id is of one question."
                    )
                seen.add(question.id)
                questions.append(question)
    if not questions:
        raise UserError(f"{path} has no questions.")
    return questions


def _question(row: Any, context: str, place: str) -> Question:
    # SQuAD's are strings, those of files in its format often numbers.
    numbered = isinstance(row, dict) and type(row.get("id")) is int
    id_ = str(member(row, "id", int if numbered else str, place))
    answers = None
    # Test files have none.
    if "answers" in row:
        rows = member(row, "answers", list, place)
        answers = tuple(
            _answer(answer, f"{place}, answer {number}")
            for number, answer in enumerate(rows, start=1)
        )
        said = row.get("is_impossible", not answers)
        if said is not (not answers):
            raise UserError(
                f"{place}: is_impossible is {shown_json(said)}, and the number "
                f"of answers {len(answers)}; correct one or the other."
            )
    return Question(
        id=id_,
        question=member(row, "question", str, place),
        context=context,
        answers=answers,
        location=f"{place} (id {shown_json(id_)})",
    )


def _answer(row: Any, place: str) -> Answer:
    return Answer(
        text=member(row, "text", str, place),
        start=member(row, "answer_start", int, place),
    )
