"""RACE: questions with options on articles, in files as downloaded.

Lai et al., RACE: Large-scale ReAding Comprehension Dataset From Examinations,
2017.
"""

import os
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert_tf.config import UserError, shown
from albert_tf.io import files
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.formats import json_values

LEVELS = ("middle", "high")
SPLITS = ("train", "dev", "test")
# What an answer is written as, by the number of its option.
LETTERS = string.ascii_uppercase

# The answer in files that keep answers secret.
_UNTOLD = ""
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
    data_dir: str, split: str, levels: Sequence[str] = LEVELS
) -> list[ChoiceExample]:
    """Returns the questions of a split, level after level.

    Args:
        data_dir: with the folders train, dev and test.
        split: of SPLITS; those of test need not have answers.
        levels: of LEVELS.

    Raises:
        UserError: see `read_levels`, and for a split that RACE has not.
    """
    if split not in SPLITS:
        raise UserError(
            f"RACE has no split {split!r}; it has {', '.join(SPLITS)}."
        )
    directory = os.path.join(data_dir, split)
    return read_levels(directory, levels, labelled=split != "test")


def read_levels(
    directory: str, levels: Sequence[str] = LEVELS, *, labelled: bool = True
) -> list[ChoiceExample]:
    """Returns the questions of a split's folder, level after level.

    A level is `all.txt` with an article in each line, or else files with one
    article each, in the order of the numbers in their names.

    Args:
        directory: with a folder for each level.
        levels: of LEVELS.
        labelled: whether every article must have answers.

    Raises:
        UserError: for a level that RACE has not, a folder that is missing or
            has no files, and what is not in RACE's format; the place is named.
    """
    if not levels or not set(levels) <= set(LEVELS):
        raise UserError(
            f"levels={','.join(levels)} is not of RACE, which has "
            f"{', '.join(LEVELS)}."
        )
    examples: list[ChoiceExample] = []
    seen: set[str] = set()
    for level in levels:
        for place, article in _articles(os.path.join(directory, level)):
            for example in _questions(article, place, level, labelled):
                if example.id in seen:
                    raise UserError(
                        f"{example.location}: there was a question with this "
                        "id before; every id is of one article."
                    )
                seen.add(example.id)
                examples.append(example)
                _check_number(example, examples[0])
    if not examples:
        raise UserError(f"{directory} has no questions; {_ADVICE}")
    return examples


def _check_number(example: ChoiceExample, first: ChoiceExample) -> None:
    if len(example.choices) != len(first.choices):
        raise UserError(
            f"{example.location}: {len(example.choices)} options, where the "
            f"first question has {len(first.choices)}; all need as many."
        )


def _articles(directory: str) -> Iterator[tuple[str, Any]]:
    """Yields the place and the value of each article of a level."""
    try:
        names = files.listdir(directory)
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror}; {_ADVICE}") from None
    if _ALL in names:
        path = os.path.join(directory, _ALL)
        yield from json_values.read_json_lines(path, _ADVICE)
        return
    names = [name for name in names if name.endswith(".txt")]
    if not names:
        raise UserError(f"{directory} has no files .txt; {_ADVICE}")
    for name in sorted(names, key=_in_number_order):
        path = os.path.join(directory, name)
        yield path, json_values.read_large_json(path)


def _in_number_order(name: str) -> tuple[list[int], str]:
    return [int(digits) for digits in re.findall("[0-9]+", name)], name


def _questions(
    article: Any, place: str, level: str, labelled: bool
) -> Iterator[ChoiceExample]:
    """Yields the questions of an article."""
    context = json_values.member(article, "article", str, place)
    id_ = json_values.member(article, "id", str, place)
    questions = json_values.member(article, "questions", list, place)
    options = json_values.member(article, "options", list, place)
    answers: Sequence[Any] = [_UNTOLD] * len(questions)
    if labelled or "answers" in article:
        answers = json_values.member(article, "answers", list, place)
    if not len(questions) == len(options) == len(answers):
        raise UserError(
            f"{place}: {len(questions)} questions, {len(options)} lists of "
            f"options and {len(answers)} answers; an article has as many of "
            "each."
        )
    rows = zip(questions, options, answers, strict=True)
    for number, (question, texts, answer) in enumerate(rows):
        name = f"{id_}-{number}"
        where = f"{place}, question {number + 1} (id {name[:60]!r})"
        choices = _choices(question, texts, where)
        label = None
        if answer != _UNTOLD:
            label = _number(answer, len(choices), f"{where}: the answer")
        elif labelled:
            raise UserError(
                f"{where}: the answer is empty; only the files of test may "
                "keep their answers secret."
            )
        yield ChoiceExample(context, choices, label, where, name, level)


def _choices(question: Any, options: Any, place: str) -> tuple[str, ...]:
    question = json_values.of_kind(question, str, f"{place}: it")
    options = json_values.of_kind(options, list, f"{place}: options")
    if not 2 <= len(options) <= len(LETTERS):
        raise UserError(
            f"{place}: {len(options)} options; a choice is between two or "
            f"more, and {len(LETTERS)} at most."
        )
    return tuple(
        question_with_option(
            question, json_values.of_kind(option, str, f"{place}: option {n}")
        )
        for n, option in enumerate(options, start=1)
    )


def _number(letter: Any, options: int, what: str) -> int:
    """Returns the number of an option."""
    allowed = list(LETTERS[:options])
    if letter not in allowed:
        raise UserError(
            f"{what} is {json_values.shown_json(letter)}; it must be one of "
            f"{', '.join(allowed)}."
        )
    return allowed.index(letter)


def read_race_answers(
    path: str, examples: Sequence[ChoiceExample]
) -> dict[str, int]:
    """Returns the numbers of the options that a prediction file says, by id.

    Args:
        path: of a JSON object of letters by id.
        examples: the gold ones, which tell how many options there are.

    Raises:
        UserError: for a file that cannot be read, or is of another form.
    """
    letters = json_values.read_large_json(path)
    if not isinstance(letters, dict):
        raise UserError(
            f"{path} is {json_values.shown_json(letters)}, and must be an "
            "object that has a letter for each id."
        )
    options = len(examples[0].choices)
    return {
        id_: _number(letter, options, f"{path}: the value of {shown(id_)}")
        for id_, letter in letters.items()
    }


def score_race(
    examples: Sequence[ChoiceExample], answers: Mapping[str, int]
) -> dict[str, float]:
    """Returns the share of right answers: of all, and of each part.

    Args:
        examples: with labels.
        answers: numbers of options by id; what is missing is not right, and
            ids of no example do not count.

    Returns:
        `accuracy`, and `accuracy_middle` and `accuracy_high` where examples
        are of these.

    Raises:
        UserError: for an example whose right answer is not known.
    """
    right: dict[str, list[bool]] = {"": []}
    for example in examples:
        if example.label is None:
            raise UserError(
                f"{example.location} has no answer: a file that keeps them "
                "secret is no gold."
            )
        found = answers.get(example.id) == example.label
        right[""].append(found)
        if example.part:
            right.setdefault(example.part, []).append(found)
    return {
        f"accuracy_{part}" if part else "accuracy": sum(found) / len(found)
        for part, found in right.items()
    }
