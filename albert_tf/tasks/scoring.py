"""Scores of prediction files against gold, without any model."""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import UserError
from albert_tf.tasks.base import Task
from albert_tf.tasks.catalog import TASKS, RaceFiles, SquadFiles
from albert_tf.tasks.examples import Question
from albert_tf.tasks.formats import race
from albert_tf.tasks.formats.json_values import read_large_json, shown_json
from albert_tf.tasks.formats.squad import read_squad
from albert_tf.tasks.formats.tables import read_table
from albert_tf.tasks.glue import GlueFiles
from albert_tf.tasks.kinds.base import Kind
from albert_tf.tasks.kinds.question_answering import AnswerableSpans
from albert_tf.tasks.metrics import squad

# Ids that a warning names before it counts.
_NAMED = 3
# Of SQuAD 2.0's script, where nobody says another.
_OFFICIAL_THRESHOLD = 1.0


@dataclasses.dataclass(frozen=True)
class Score:
    """What a prediction file reaches.

    Attributes:
        metrics: by name, in the official script's order.
        warnings: lines for people: what is missing or left over.
    """

    metrics: dict[str, float]
    warnings: list[str]


def score(
    task: str,
    gold: str,
    predictions: str,
    *,
    null_odds: str = "",
    threshold: float | None = None,
) -> Score:
    """Returns the official measures of a prediction file.

    Args:
        task: a row of SCORED_TASKS.
        gold: the benchmark's file with labels or answers; RACE's folder of a
            split.
        predictions: as it is handed in: for GLUE a table of `index` and
            `prediction`, for SQuAD a JSON object of answers by id, for RACE
            one of letters.
        null_odds: SQuAD 2.0 alone: a JSON object of numbers by id.
        threshold: SQuAD 2.0 with null_odds: above it there is no answer;
            None: 1, as in the official script.

    Raises:
        UserError: for a file that cannot be read, or predictions that are not
            of these examples; the place is named.
    """
    row = TASKS[task]
    if null_odds and not isinstance(row.kind, AnswerableSpans):
        raise UserError(f"null_odds is for SQuAD2.0, and not for {task}.")
    if threshold is not None and not null_odds:
        raise UserError(
            f"null_threshold={threshold} is a bound of null odds; give them "
            "with --null_odds."
        )
    if threshold is not None and not math.isfinite(threshold):
        raise UserError(f"null_threshold={threshold} is no finite number.")
    if isinstance(row.reader, GlueFiles):
        return _score_glue(row, gold, predictions)
    if isinstance(row.reader, RaceFiles):
        return _score_race(row.reader.levels, gold, predictions)
    return _score_squad(row.kind, gold, predictions, null_odds, threshold)


SCORED_TASKS = tuple(
    name
    for name, task in TASKS.items()
    if isinstance(task.reader, GlueFiles | RaceFiles | SquadFiles)
    and "dev" in task.reader.splits
)


def _score_race(levels: Sequence[str], gold: str, predictions: str) -> Score:
    examples = race.read_levels(gold, levels)
    chosen = race.read_race_answers(predictions, examples)
    return Score(race.score_race(examples, chosen), _warnings(examples, chosen))


def _score_squad(
    kind: Kind,
    gold: str,
    predictions: str,
    null_odds: str,
    threshold: float | None,
) -> Score:
    questions = read_squad(gold)
    for question in questions:
        if question.answers is None:
            raise UserError(
                f"{question.location} has no 'answers': a file that keeps them "
                "secret is no gold."
            )
    answers = _by_id(predictions, _is_string, "a string")
    warnings = _warnings(questions, answers)
    if not isinstance(kind, AnswerableSpans):
        return Score(squad.scores_v1(questions, answers), warnings)
    odds = None
    if null_odds:
        odds = _by_id(null_odds, _is_number, "a finite number")
    measures = squad.scores_v2(
        questions,
        answers,
        odds,
        _OFFICIAL_THRESHOLD if threshold is None else threshold,
    )
    if odds is not None:
        if threshold is None:
            warnings += _overruled(questions, answers, odds)
        warnings.append(
            "best_exact and best_f1 are what the best threshold on these very "
            "questions would give: no results."
        )
    return Score(measures, warnings)


def _overruled(
    questions: Sequence[Question],
    answers: Mapping[str, str],
    odds: Mapping[str, float],
) -> list[str]:
    """Returns a line if a threshold that nobody chose takes answers away.

    It is one of probabilities; odds of models are any numbers.
    """
    ids = [
        question.id
        for question in questions
        if answers.get(question.id) and odds[question.id] > _OFFICIAL_THRESHOLD
    ]
    if not ids:
        return []
    return [
        f"{len(ids)} answers count as none, for their null odds are above the "
        f"official script's threshold, {_OFFICIAL_THRESHOLD:g}: {_some(ids)}; "
        "give your own with --null_threshold."
    ]


def _score_glue(task: Task, gold: str, predictions: str) -> Score:
    examples = task.reader.read_gold(gold)
    found = _read_submission(task, predictions, len(examples))
    labels = np.array(
        [task.reader.label_number(e.label, e.location) for e in examples]
    )
    measures = {
        name: metric(labels, found) for name, metric in task.metrics.items()
    }
    warnings = [
        f"{name} is not defined for these numbers, as where all labels or all "
        "predictions are equal."
        for name, value in measures.items()
        if math.isnan(value)
    ]
    return Score(measures, warnings)


def _read_submission(task: Task, path: str, number: int) -> np.ndarray:
    """Returns the predicted label numbers `[examples]`."""
    header, *rows = read_table(path, "it is to hold GLUE's predictions.")
    if header.fields != ["index", "prediction"]:
        raise UserError(
            f"{header.location}: the columns are "
            f"{', '.join(header.fields)[:60]!r}; "
            "they must be index and prediction."
        )
    found = np.full(number, np.nan)
    indices = {str(index) for index in range(number)}
    for row in rows:
        if len(row.fields) != 2:
            raise UserError(
                f"{row.location}: {len(row.fields)} tab-separated fields, "
                "where two are needed."
            )
        index, label = row.fields
        if index not in indices:
            raise UserError(
                f"{row.location}: the index is {index[:60]!r}; the gold file "
                f"has examples 0 to {number - 1}."
            )
        if not math.isnan(found[int(index)]):
            raise UserError(f"{row.location}: the index {index} came before.")
        found[int(index)] = task.reader.label_number(
            label.strip(), row.location
        )
    missing = np.flatnonzero(np.isnan(found))
    if len(missing):
        raise UserError(
            f"{path}: {len(missing)} of {number} examples have no prediction: "
            f"{_some([str(n) for n in missing])}."
        )
    return found


def _by_id(path: str, fits: Callable[[Any], bool], what: str) -> dict:
    """Returns a JSON object whose values all fit."""
    values = read_large_json(path)
    if not isinstance(values, dict):
        raise UserError(
            f"{path} is {shown_json(values)}, and must be an object that has "
            f"{what} for each id."
        )
    for id_, value in values.items():
        if not fits(value):
            raise UserError(
                f"{path}: the value of {id_[:60]!r} is {shown_json(value)}, "
                f"and must be {what}."
            )
    return values


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        # A whole number that no float can be.
        return False


def _warnings(
    questions: Sequence[Question | race.ChoiceExample],
    answers: Collection[str],
) -> list[str]:
    ids = {question.id for question in questions}
    missing = [
        question.id for question in questions if question.id not in answers
    ]
    extra = [id_ for id_ in answers if id_ not in ids]
    warnings = []
    if missing:
        warnings.append(
            f"{len(missing)} of {len(questions)} questions have no "
            f"prediction and score 0: {_some(missing)}."
        )
    if extra:
        warnings.append(
            f"{len(extra)} predictions are of no question here and do not "
            f"count: {_some(extra)}."
        )
    return warnings


def _some(names: list[str]) -> str:
    shown = ", ".join(
        name[:60] if name.isprintable() else repr(name[:60])
        for name in names[:_NAMED]
    )
    return f"{shown} and others" if len(names) > _NAMED else shown
