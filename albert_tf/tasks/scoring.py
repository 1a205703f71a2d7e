"""Metrics of prediction files against gold files, without a model."""

import collections
import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from albert_tf.config import UserError, listed, require, shown, silent
from albert_tf.tasks.base import Task
from albert_tf.tasks.catalog import TASKS, RaceFiles
from albert_tf.tasks.examples import ChoiceExample, Example, Question
from albert_tf.tasks.formats.json_values import (
    check,
    read_large_json,
    shown_json,
)
from albert_tf.tasks.formats.question_rows import read_questions
from albert_tf.tasks.formats.race import LETTERS, read_race
from albert_tf.tasks.formats.rows import PARQUET, ending_of
from albert_tf.tasks.formats.tables import read_table
from albert_tf.tasks.glue import GlueFiles
from albert_tf.tasks.kinds.base import Kind, metric_values
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.metrics import squad


@dataclasses.dataclass(frozen=True)
class Score:
    """The metrics of a prediction file, in the official script's order.

    `warnings` are lines on predictions that are missing or left over.
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
    """Returns the official metrics of a prediction file.

    Args:
        task: one of SCORED_TASKS.
        gold: the benchmark's file with labels or answers; RACE's folder of a
            split.
        predictions: for GLUE a table of `index` and `prediction`, for SQuAD a
            JSON object of answers by id, for RACE one of letters.
        null_odds: for SQuAD 2.0: a JSON object of numbers by id.
        threshold: of null_odds: above it there is no answer; None: 1, as in
            the official script.

    Raises:
        UserError: for a file that cannot be read, and for a prediction that
            is not of these examples.
    """
    row = TASKS[task]
    require(
        ending_of(gold) not in (".csv", PARQUET),
        f"{gold}: expected the benchmark's own file: GLUE's .tsv, SQuAD's "
        ".json or RACE's folder. bin.evaluate scores a model on other files.",
    )
    require(
        not null_odds or isinstance(row.kind, AnswerableSpans),
        f"null_odds is for SQuAD2.0, and not for {task}.",
    )
    require(
        threshold is None or bool(null_odds),
        f"null_threshold={threshold} applies to null odds; give --null_odds.",
    )
    require(
        threshold is None or math.isfinite(threshold),
        f"null_threshold={threshold}: expected a finite number.",
    )
    if isinstance(row.reader, GlueFiles):
        return _score_glue(row, row.reader, gold, predictions)
    if isinstance(row.reader, RaceFiles):
        return _score_race(row.reader.levels, gold, predictions)
    return _score_squad(row.kind, gold, predictions, null_odds, threshold)


SCORED_TASKS = tuple(
    name
    for name, task in TASKS.items()
    if (isinstance(task.reader, GlueFiles | RaceFiles) and name != "AX")
    or isinstance(task.kind, Spans)
)


def _score_race(levels: Sequence[str], gold: str, predictions: str) -> Score:
    examples = read_race(gold, levels)
    letters = list(LETTERS[: len(examples[0].choices)])
    expected = f"one of {', '.join(letters)}"
    answers = _by_id(predictions, letters.__contains__, expected)
    right = collections.defaultdict(list)
    for example in examples:
        is_right = answers.get(example.id) == LETTERS[cast(int, example.label)]
        for name in ("accuracy", f"accuracy_{example.part}"):
            right[name].append(is_right)
    metrics = {name: sum(rows) / len(rows) for name, rows in right.items()}
    return Score(metrics, _unmatched(examples, answers))


def _score_squad(
    kind: Kind,
    gold: str,
    predictions: str,
    null_odds: str,
    threshold: float | None,
) -> Score:
    questions = read_questions(gold, True, print)
    for question in questions:
        require(
            question.answers is not None,
            f"{question.location} has no 'answers'; a gold file needs them.",
        )
    answers = _by_id(predictions, lambda v: isinstance(v, str), "a string")
    warnings = _unmatched(questions, answers)
    if not isinstance(kind, AnswerableSpans):
        return Score(squad.scores_v1(questions, answers), warnings)
    if not null_odds:
        return Score(squad.scores_v2(questions, answers), warnings)
    odds = _by_id(
        null_odds,
        lambda v: type(v) in (int, float) and abs(v) < math.inf,
        "a finite number",
    )
    # The default is that of SQuAD 2.0's script.
    used = 1.0 if threshold is None else threshold
    metrics = squad.scores_v2(questions, answers, odds, used)
    # The official default is a probability; a model's odds are any number.
    ids = [q.id for q in questions if answers.get(q.id) and odds[q.id] > used]
    if threshold is None and ids:
        warnings.append(
            f"{len(ids)} answers count as none: their null odds exceed the "
            f"official script's threshold, {used:g}: {listed(ids)}; give your "
            "own with --null_threshold (bin.evaluate's is null_threshold in "
            "metrics.json)."
        )
    warnings.append(
        "best_exact and best_f1 use the best threshold for these very "
        "questions; they are no results."
    )
    return Score(metrics, warnings)


def _score_glue(
    task: Task, reader: GlueFiles, gold: str, predictions: str
) -> Score:
    examples = reader.read_file(gold, "dev", silent)
    header, *rows = read_table(predictions, "expected GLUE's predictions.")
    require(
        header.fields == ["index", "prediction"],
        f"{header.location}: expected the columns index and prediction, got "
        f"{shown(', '.join(header.fields))}.",
    )
    by_index: dict[str, Example | None] = dict.fromkeys(
        map(str, range(len(examples)))
    )
    for row in rows:
        index, *label = row.fields
        if len(label) != 1 or index not in by_index or by_index[index]:
            raise UserError(
                f"{row.location}: expected an index from 0 to "
                f"{len(examples) - 1}, each once, a tab and a label, got "
                f"{shown(chr(9).join(row.fields))}."
            )
        by_index[index] = Example(("",), label[0].strip(), row.location)
    missing = [index for index, example in by_index.items() if not example]
    require(
        not missing,
        f"{predictions}: {len(missing)} of {len(examples)} examples have no "
        f"prediction: {listed(missing)}.",
    )
    labels, predicted = (
        task.kind.label_ids(labelled, task.labels)
        for labelled in (examples, list(by_index.values()))
    )
    found = metric_values(task.metrics, labels, predicted)
    warnings = [
        f"{name} is not defined for these numbers, as where all labels or all "
        "predictions are equal."
        for name, value in found.items()
        if math.isnan(value)
    ]
    return Score(found, warnings)


def _by_id(path: str, fits: Callable[[Any], bool], expected: str) -> dict:
    values = read_large_json(path)
    check(values, dict, path)
    for id_, value in values.items():
        if not fits(value):
            raise UserError(
                f"{path}: expected {expected} for {shown(id_)}, got "
                f"{shown_json(value)}."
            )
    return values


def _unmatched(
    questions: Sequence[Question | ChoiceExample], answers: Collection[str]
) -> list[str]:
    ids = {question.id for question in questions}
    missing = [q.id for q in questions if q.id not in answers]
    extra = [id_ for id_ in answers if id_ not in ids]
    warnings = []
    if missing:
        warnings.append(
            f"{len(missing)} of {len(questions)} questions have no "
            f"prediction and score 0: {listed(missing)}."
        )
    if extra:
        warnings.append(
            f"{len(extra)} predictions are of no question here and do not "
            f"count: {listed(extra)}."
        )
    return warnings
