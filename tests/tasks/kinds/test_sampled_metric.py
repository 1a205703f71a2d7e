"""Metrics of samples of examples, against those of the examples repeated."""

import dataclasses

import numpy as np
import pytest

from albert_tf.config import FeatureConfig
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import custom_task
from albert_tf.tasks.examples import (
    Answer,
    ChoiceExample,
    Example,
    Question,
    WordsExample,
)
from albert_tf.tasks.kinds.base import ScoredExamples
from albert_tf.tasks.kinds.span_answers import QuestionScores

TAGS = ["B-X", "B-Y", "I-X", "I-Y", "O"]


def classes(rng, count=40):
    examples = [Example(("a",), str(rng.integers(2))) for _ in range(count)]
    return examples, list(rng.dirichlet([1, 1], count)), ["0", "1"]


def numbers(rng, count=40):
    gold = rng.normal(size=count)
    examples = [Example(("a", "b"), f"{number:.3f}") for number in gold]
    return examples, list(gold + rng.normal(size=count)), []


def choices(rng, count=40):
    examples = [
        ChoiceExample("c", ("a", "b", "c"), int(rng.integers(3)))
        for _ in range(count)
    ]
    return examples, list(rng.dirichlet([1, 1, 1], count)), []


def tags(rng, count=20):
    examples = [
        WordsExample(("w",) * size, tuple(map(str, rng.choice(TAGS, size))))
        for size in rng.integers(1, 9, count)
    ]
    scores = [
        rng.dirichlet(np.full(len(TAGS), 0.3), len(example.words))
        for example in examples
    ]
    return examples, scores, TAGS


def questions(rng, count=30, answerable=True):
    context = "one two three four five six"
    starts = np.cumsum([0, 4, 4, 6, 5, 5])
    examples, scores = [], []
    for number in range(count):
        first, last = sorted(rng.integers(6, size=2))
        text = " ".join(context.split()[first : last + 1])
        answers = (Answer(text, int(starts[first])),)
        if not answerable and number % 3 == 0:
            answers = ()
        examples.append(Question(f"{number}", "?", context, answers, ""))
        span = (int(starts[rng.integers(6)]), len(context), 1.0)
        odds = None if answerable else float(rng.normal())
        scores.append(QuestionScores((span,), odds))
    return examples, scores, []


def doubtful_questions(rng):
    return questions(rng, answerable=False)


@pytest.mark.parametrize(
    ("task", "make", "names"),
    [
        (TASKS["MRPC"], classes, ("accuracy", "f1")),
        (TASKS["CoLA"], classes, ("matthews_correlation",)),
        (TASKS["STS-B"], numbers, ("pearson", "mean_absolute_error")),
        (TASKS["RACE"], choices, ("accuracy",)),
        (
            custom_task(["word=0", "tag=-1"]),
            tags,
            ("f1", "precision", "recall", "accuracy"),
        ),
        (TASKS["SQuAD1.1"], questions, ("f1", "exact_match")),
        (TASKS["SQuAD2.0"], doubtful_questions, ("f1", "exact")),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_sample_is_measured_as_its_examples(task, make, names):
    rng = np.random.default_rng(0)
    examples, scores, labels = make(rng)
    scored = ScoredExamples(examples, scores, FeatureConfig(), labels)
    rows = rng.integers(len(examples), size=len(examples))
    repeated = [examples[row] for row in rows]
    if hasattr(repeated[0], "answers"):
        # Answers are found by the questions' ids.
        repeated = [
            dataclasses.replace(example, id=str(number))
            for number, example in enumerate(repeated)
        ]
    sample = dataclasses.replace(
        scored, examples=repeated, scores=[scores[row] for row in rows]
    )
    expected = task.kind.compute_metrics(sample, task.metrics)
    for name in names:
        metric = task.kind.sampled_metric(scored, task.metrics, name)
        assert metric(rows) == pytest.approx(expected[name]), name


def test_a_metric_with_a_threshold_of_its_own_has_none():
    examples, scores, _ = doubtful_questions(np.random.default_rng(0))
    scored = ScoredExamples(examples, scores, FeatureConfig(), [])
    kind = TASKS["SQuAD2.0"].kind
    assert kind.sampled_metric(scored, {}, "best_f1") is None
