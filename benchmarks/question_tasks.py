"""Tasks made of the articles of SQuAD's files: `QUESTION_TASKS`."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from albert_tf.io.json_files import read_json

Article = dict[str, Any]
Row = tuple[str, ...]

_MONTH = re.compile(
    "January|February|March|April|May|June|July|August|September|October|"
    "November|December"
)
_YEAR = re.compile(r"(1[0-9]|20)[0-9]{2}")


def read_articles(paths: Sequence[str]) -> list[Article]:
    """Returns the articles of SQuAD's files, in their order."""
    return [article for path in paths for article in read_json(path)["data"]]


def article_of(article: Article, question: dict[str, Any]) -> str:
    """Returns the title of the article that a question is about."""
    del question
    return article["title"]


def form_of_answer(article: Article, question: dict[str, Any]) -> str:
    """Returns the form of a question's first answer; "" without answers."""
    del article
    if not question["answers"]:
        return ""
    text = question["answers"][0]["text"]
    words = text.split()
    if _MONTH.search(text) or _YEAR.fullmatch(text):
        return "date"
    if any(character.isdigit() for character in text):
        return "number"
    if all(word[:1].isupper() for word in words):
        return "name"
    return "word" if len(words) == 1 else "phrase"


QUESTION_TASKS: dict[str, Callable[[Article, dict[str, Any]], str]] = {
    "article": article_of,
    "answer-form": form_of_answer,
}


def question_rows(articles: Sequence[Article], name: str) -> list[Row]:
    """Returns questions with their labels, those without one left out."""
    label_of = QUESTION_TASKS[name]
    return [
        (" ".join(question["question"].split()), label)
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
        if (label := label_of(article, question))
    ]
