"""Regression of texts."""

import json
import re

import numpy as np
import pytest

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.base import ScoredExamples
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.metrics import scalar

KIND = Regression()
CONFIG = FeatureConfig()
EXAMPLES = [
    Example(("the",), "1.5", "f:2"),
    Example(("of", "and"), "-2", "f:3"),
    Example(("and",), "4", "f:4"),
    Example(("and",), None, "f:5"),
]


def test_numbers():
    labels = ["3.800", "-2", "+.5", "5.", "1e-3", "2E+1", "3.4e38"]
    examples = [Example(("a",), label) for label in labels]
    assert KIND.label_ids(examples, []).tolist() == list(map(float, labels))


@pytest.mark.parametrize(
    # -1e39 is no float32.
    "label",
    ["", "1_0", "nan", "1e999", "-1e39", "0x1", " 1", "1,5", "٣", ".", "1\n"],
)
def test_labels_that_are_no_numbers(label):
    message = (
        "t.tsv:2: expected a number, with a decimal point and up to "
        rf"3.4e\+38, as the label.*, got {re.escape(repr(label))}."
    )
    with pytest.raises(UserError, match=message):
        KIND.label_ids([*EXAMPLES, Example(("a",), label, "t.tsv:2")], [])


@pytest.mark.parametrize(
    ("label", "is_advised"),
    [
        *((text, True) for text in ("0,77", "1.234,5", "3 %", "-3%", "1 234")),
        *((text, False) for text in ("good", "", "1e999", "nan", "12 apples")),
    ],
)
def test_numbers_in_another_form_are_to_be_converted(label, is_advised):
    with pytest.raises(UserError) as raised:
        KIND.label_ids([*EXAMPLES, Example(("a",), label, "t.tsv:2")], [])
    assert ("convert the column" in str(raised.value)) == is_advised


@pytest.mark.parametrize(
    ("labels", "scaling"),
    [
        ("1 4", (2.5, 1)),
        ("1000 1001", (1000.5, 0.5)),
        ("0 90", (45, 45)),
    ],
)
def test_numbers_of_another_scale_are_scaled(labels, scaling):
    examples = [Example((n,), n) for n in labels.split()]
    assert KIND.label_scaling(examples) == scaling


@pytest.mark.parametrize(
    ("labels", "number"),
    # The deviation of the second is computed as 1.4e-17.
    [("1 1", "1"), ("0.1 0.1 0.1", "0.1"), ("0 0", "0")],
)
def test_equal_numbers_are_refused(labels, number):
    examples = [Example((n,), n, "train.tsv:2") for n in labels.split()]
    message = f"^train.tsv:2 and .* have one number only, {number}; regression"
    with pytest.raises(UserError, match=message):
        KIND.label_scaling(examples)


def test_numbers_too_near_for_their_size_are_refused():
    def scaling(*labels):
        return KIND.label_scaling([Example((n,), n, "a:2") for n in labels])

    message = (
        "^a:2 and what follows: the numbers, from 1700000000 to 1700000120, "
        "differ too little for their size: a model's are float32. Subtract one "
        "number from all of them, such as 1700000060.$"
    )
    with pytest.raises(UserError, match=message):
        scaling("1700000000", "1700000120")
    # float32 has one digit of their differences.
    with pytest.raises(UserError, match="differ too little for their size"):
        scaling("1700000000", "1700010000")
    # Months of a year in seconds.
    assert scaling("1700000000", "1720000000").deviation == 1e7


def test_features(tiny_tokenizer):
    found = KIND.features(
        EXAMPLES, tiny_tokenizer, CONFIG, labels=[], training=True
    ).scalars["label_ids"]
    assert found.tolist() == [1.5, -2.0, 4.0, 0.0]
    assert found.dtype == np.float32


def test_scores_and_their_ensemble():
    outputs = {"predictions": np.array([0.5, 2.0], np.float32)}
    scores = KIND.scores(None, outputs, CONFIG)
    mean = KIND.ensemble([[1.0, 2.0], [3.0, 4.0], [8.0, 0.0]])
    # Both are written as JSON.
    assert json.dumps(scores + mean) == "[0.5, 2.0, 4.0, 2.0]"


def test_metrics():
    gold, found = np.array([1.5, -2.0, 4.0]), np.array([1.0, 0.0, 3.0])
    metrics = {"pearson": scalar.pearson, "spearman": scalar.spearman}
    scored = ScoredExamples(EXAMPLES[:3], found.tolist(), CONFIG, [])
    assert KIND.compute_metrics(scored, metrics) == pytest.approx(
        {
            "pearson": np.corrcoef(gold, found)[0, 1],
            "spearman": 1.0,
            "mean_squared_error": np.mean((gold - found) ** 2),
            "mean_guess_mean_squared_error": np.var(gold),
            # From 1.5, -2 and 4, whose mean is 7 / 6.
            "mean_absolute_error": (0.5 + 2.0 + 1.0) / 3,
            "mean_guess_mean_absolute_error": (2 + 19 + 17) / 18,
        }
    )
    names = KIND.metric_names(metrics, [])
    assert names[-2:] == ("mean_squared_error", "mean_absolute_error")


def test_the_mean_of_equal_numbers_has_no_error():
    examples = [Example(("a",), "0.1")] * 3
    assert np.mean([0.1] * 3) != 0.1
    found = KIND.compute_metrics(
        ScoredExamples(examples, [0.1] * 3, CONFIG, []), {}
    )
    assert found["mean_guess_mean_squared_error"] == 0.0


def test_predictions():
    found = KIND.predictions(
        ScoredExamples(EXAMPLES, [1.0, 0.0, 4.0, 9.0], CONFIG, [])
    )
    assert found[0].fields == {"text": "the", "label": 1.5, "prediction": 1.0}
    assert [p.error for p in found] == [0.5, 2.0, 0.0, 0.0]


def test_figure():
    figure = KIND.figure(
        ScoredExamples(EXAMPLES[:3], [1.0, 0.0, 4.0], CONFIG, [])
    )
    assert figure.measure == "number"
    groups = {name: list(values) for name, values in figure.groups.items()}
    assert groups == {"labels": [1.5, -2.0, 4.0], "answers": [1.0, 0.0, 4.0]}


def test_constant_prediction():
    def found(*scores, labels=("0", "5")):
        examples = [Example((n,), n) for n in labels]
        scored = ScoredExamples(examples, scores, CONFIG, [])
        return KIND.constant_prediction(scored)

    assert found(2.51, 2.49) == "2.5"
    assert found(2.5, 2.56) is None
    assert found(2.5, labels="0") is None
    # Years, and dev examples with one number.
    assert found(1990, 1991, labels=("1950", "2020")) is None
    assert found(1990, 1991, labels=("1990", "1990")) is None
