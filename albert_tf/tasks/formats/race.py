"""RACE (Lai et al., 2017): questions on articles, in files as downloaded."""

import os
import re
import string
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.config import UserError, require, shown
from albert_tf.io import files
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.formats.json_values import (
    check,
    read_json_lines,
    read_large_json,
    shown_json,
)

LEVELS = ("middle", "high")
# Letters of the options, by their numbers.
LETTERS = string.ascii_uppercase

_ARTICLE = {
    "article": str,
    "id": str,
    "questions": [str],
    "options": [[str]],
}
_ALL = "all.txt"
_ADVICE = (
    "the data directory is the folder RACE of the benchmark's archive, where "
    "train, dev and test each have middle and high with files .txt."
)


def question_with_option(question: str, option: str) -> str:
    """Returns the question with the option in every "_", or else after it."""
    if "_" in question:
        return question.replace("_", option)
    return f"{question} {option}"


def read_race(
    directory: str, levels: Sequence[str] = LEVELS, *, labelled: bool = True
) -> list[ChoiceExample]:
    """Returns the questions of a split, level after level.

    The folder of a level has `all.txt` with an article in each line, or else
    files with one article each, in the order of the numbers in their names.
    `labelled` requires answers. Raises UserError for a folder that is missing
    or has no questions, and for anything else than RACE's format.
    """
    examples = [
        example
        for level in levels
        for location, article in _articles(os.path.join(directory, level))
        for example in _questions(article, location, level, labelled)
    ]
    require(bool(examples), f"{directory} has no questions; {_ADVICE}")
    return examples


def _articles(directory: str) -> Iterator[tuple[str, Any]]:
    try:
        names = files.listdir(directory)
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror}; {_ADVICE}") from None
    if _ALL in names:
        yield from read_json_lines(os.path.join(directory, _ALL), _ADVICE)
        return
    for name in sorted(names, key=_numbers):
        # macOS puts a hidden file beside each one in an archive.
        if name.endswith(".txt") and name[0] != ".":
            path = os.path.join(directory, name)
            yield path, read_large_json(path)


def _numbers(name: str) -> tuple[list[int], str]:
    return [int(digits) for digits in re.findall("[0-9]+", name)], name


def _questions(
    article: Any, location: str, level: str, labelled: bool
) -> Iterator[ChoiceExample]:
    answers_key = "answers" if labelled else "answers?"
    check(article, _ARTICLE | {answers_key: list}, location)
    questions, options = article["questions"], article["options"]
    answers = article.get("answers", [""] * len(questions))
    if not len(questions) == len(options) == len(answers):
        raise UserError(
            f"{location}: expected as many questions as lists of options and "
            f"answers, got {len(questions)}, {len(options)} and "
            f"{len(answers)}."
        )
    rows = zip(questions, options, answers, strict=True)
    for number, (question, texts, answer) in enumerate(rows):
        id_ = f"{article['id']}-{number}"
        at = f"{location}: questions[{number}] (id {shown(id_)})"
        letters = list(LETTERS[: len(texts)])
        if answer not in letters and (labelled or answer != ""):
            raise UserError(
                f"{at}: expected an answer of {', '.join(letters)}, got "
                f"{shown_json(answer)}; only files of test may keep their "
                "answers secret."
            )
        yield ChoiceExample(
            article["article"],
            tuple(question_with_option(question, text) for text in texts),
            letters.index(answer) if answer else None,
            at,
            id_,
            level,
        )
