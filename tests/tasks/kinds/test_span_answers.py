"""Predictions and metrics from scores of spans."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.tasks.examples import Answer, Question
from albert_tf.tasks.kinds.span_answers import (
    QuestionScores,
    best_spans,
    compute_metrics,
    ensemble_scores,
    nbest,
    predictions,
)
from albert_tf.tasks.metrics.squad import scores_v2

CONTEXT = "😀 Red e\u0301 and red, blue"
RED, ACCENT, LOWER, BLUE = (2, 5), (6, 8), (13, 16), (18, 22)


def question(id_, *answers, context=CONTEXT):
    golds = tuple(Answer(text, 0) for text in answers)
    return Question(id_, "?", context, golds, f"place {id_}")


def scores(*spans, none=None):
    return QuestionScores(tuple((*span, score) for span, score in spans), none)


def test_best_spans():
    starts, ends, values = np.array(
        [(4, 6, 1), (0, 8, 2), (4, 6, 7), (4, 5, 2), (0, 2, 2), (9, 9, 0)]
    ).T
    expected = ((4, 6, 7.0), (0, 2, 2.0), (0, 8, 2.0), (4, 5, 2.0))
    assert best_spans(starts, ends, values * 1.0, 4) == expected
    assert best_spans(starts, ends, values * 1.0, 1) == expected[:1]
    assert best_spans(starts[:0], ends[:0], values[:0], 4) == ()


def test_ensemble():
    one = scores((RED, 4.0), (BLUE, 1.0), none=1.0)
    two = scores((BLUE, 5.0), (ACCENT, 3.0), (LOWER, 2.0), none=-2.0)
    # A missing span has the score of the worst one: 1 and 2.
    both = ensemble_scores([one, two])
    assert both == scores((RED, 3.0), (BLUE, 3.0), (ACCENT, 2.0), none=-0.5)
    assert ensemble_scores([two, one]) == both
    # A member without spans only votes on whether there is an answer.
    assert ensemble_scores([one, scores(none=3.0)]) == scores(
        (RED, 4.0), (BLUE, 1.0), none=2.0
    )
    assert ensemble_scores([scores(), scores()]) == scores()


def test_predictions_at_the_threshold():
    """A question is answered on the threshold, and not above it."""
    questions = [question(str(n)) for n in range(4)]
    rows = [
        scores((RED, 1.0), none=0.5),
        scores((RED, 1.0), none=math.nextafter(0.5, 1)),
        scores(none=-9.0),
        scores((RED, 1.0), none=-9.0),
    ]
    expected = {"0": "Red", "1": "", "2": "", "3": "Red"}
    assert predictions(questions, rows, 0.5) == expected
    # Version 1.1 has no threshold.
    rows = [scores((BLUE, 1.0), (RED, 0.0)), scores()]
    assert predictions(questions[:2], rows, -9.0) == {"0": "blue", "1": ""}


def test_nbest():
    asked = question("a", context="red and red, blue")
    # The second red is no other answer.
    spans = ((8, 11), 2.0), ((13, 17), 1.0), ((0, 3), 0.0)
    found = nbest(asked, scores(*spans))
    power = math.exp(2.0) + math.exp(1.0)
    probabilities = np.exp([2.0, 1.0]) / power
    assert [e["text"] for e in found] == ["red", "blue"]
    assert [e["score"] for e in found] == [2.0, 1.0]
    assert [e["probability"] for e in found] == pytest.approx(probabilities)
    assert nbest(asked, scores()) == []

    found = nbest(asked, scores(*spans, none=-1.5))
    none = 1 / (1 + math.exp(1.5))
    assert [e["text"] for e in found] == ["red", "blue", ""]
    assert found[2]["score"] == -1.5
    assert [e["probability"] for e in found] == pytest.approx(
        [*((1 - none) * probabilities), none]
    )
    assert nbest(asked, scores(none=-800.0)) == [
        {"text": "", "probability": 1.0, "score": -800.0}
    ]
    # No overflow.
    far = nbest(asked, scores((RED, 9e3), none=-9e3))
    assert [e["probability"] for e in far] == [1.0, 0.0]


def test_metrics():
    questions = [
        question("right", "red"),
        question("late", "red", "and red, blue"),
        question("none", *[]),
    ]
    rows = [
        scores((RED, 1.0), none=-1.0),
        # Two words of the three.
        scores(((13, 22), 1.0), none=2.0),
        scores((RED, 1.0), none=3.0),
    ]
    found = compute_metrics(questions, rows, 0.0)
    official = scores_v2(questions, {"right": "Red", "late": "", "none": ""})
    assert {name: found[name] for name in official} == official
    assert found["best_f1"] == pytest.approx((100 + 80 + 100) / 3)
    rows = [scores((RED, 1.0)), scores(((13, 22), 1.0))]
    of_version_1 = compute_metrics(questions[:2], rows)
    assert of_version_1 == pytest.approx({"exact_match": 50.0, "f1": 90.0})
    # Midway between what is answered and what is not.
    assert found["best_f1_thresh"] == 2.5
    assert found["majority_class_f1"] == pytest.approx(100 / 3)
    assert found["majority_class_exact"] == pytest.approx(100 / 3)


@pytest.mark.parametrize(
    ("rows", "threshold"),
    [
        # All are answered: one above the highest.
        ([("red", -1.0), ("red", 4.0)], 5.0),
        # None is.
        ([(None, 4.0), (None, 6.0)], 3.0),
        # Best would be the first alone, but equal odds go together.
        ([("red", -1.0), (None, -1.0), (None, -1.0)], -2.0),
        ([("red", -1.0), (None, 4.0)], 1.5),
        # What brings nothing is not answered: the lowest of the best.
        ([("red", -1.0), ("blue", 5.0), ("blue", 9.0)], 2.0),
        # Between neighbours there is no number; on the lower it is answered.
        ([("red", 1.0), (None, math.nextafter(1.0, 2.0))], 1.0),
        ([("red", math.nextafter(1.0, 0.0)), (None, 1.0)], 1.0 - 2.0**-53),
    ],
)
def test_the_tuned_threshold(rows, threshold):
    questions = [
        question(str(n), *([gold] if gold else []))
        for n, (gold, _) in enumerate(rows)
    ]
    answers = [scores((RED, 1.0), none=none) for _, none in rows]
    found = compute_metrics(questions, answers)
    assert found["best_f1_thresh"] == threshold
    tuned = scores_v2(questions, predictions(questions, answers, threshold))
    assert tuned["f1"] == found["best_f1"]


GOLDS = st.sampled_from([(), ("red",), ("red and", "blue"), ("the",)])
ROWS = st.builds(
    lambda spans, none: scores(
        *zip(spans, (1.0, 0.0), strict=False), none=none
    ),
    st.lists(
        st.sampled_from([RED, BLUE, (9, 16), (9, 12)]), unique=True, max_size=2
    ),
    # Often equal ones.
    st.sampled_from([-2.0, -1.0, -0.5, 0.0, 1.0, 1.5, 3.0])
    | st.floats(-4, 4, width=32),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(GOLDS, ROWS), min_size=1, max_size=8))
def test_the_tuned_threshold_has_the_best_f1(drawn):
    questions = [question(str(n), *golds) for n, (golds, _) in enumerate(drawn)]
    rows = [row for _, row in drawn]
    found = compute_metrics(questions, rows)
    threshold = found["best_f1_thresh"]

    def f1(threshold):
        answers = predictions(questions, rows, threshold)
        return scores_v2(questions, answers)["f1"]

    assert f1(threshold) == found["best_f1"]
    for other in (-math.inf, *(row.no_answer for row in rows)):
        assert f1(other) <= found["best_f1"] + 1e-9
