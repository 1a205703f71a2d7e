"""The rows of what is predicted, and the losses made from them."""

import collections

import numpy as np
import pytest

from albert_tf.records.sentence_objectives import (
    SENTENCE_OBJECTIVES,
    pretraining_targets,
)
from albert_tf.training.objectives import (
    head_objective,
    pretraining_objective,
)


def test_no_two_measures_have_one_name():
    names = collections.Counter(
        name
        for target in pretraining_targets()
        for name in (target.loss, target.accuracy, target.baseline)
    )
    assert set(names.values()) == {1}
    assert len(names) == 3 * 3


def mean_loss(logits, labels, weights):
    """Cross-entropy in plain NumPy, double precision."""
    logits = logits.astype(float)
    log_sums = np.log(np.exp(logits).sum(axis=-1))
    chosen = np.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return ((log_sums - chosen) * weights).sum() / weights.sum()


def mean_correct(logits, labels, weights):
    return ((logits.argmax(-1) == labels) * weights).sum() / weights.sum()


@pytest.fixture
def masked_lm():
    """Logits, labels, weights: three sequences, four slots, nine pieces."""
    rng = np.random.default_rng(1)
    return (
        rng.normal(size=(3, 4, 9)).astype(np.float32),
        rng.integers(9, size=(3, 4)),
        np.array([[1, 1, 1, 0]] * 3, np.float32),
    )


@pytest.fixture
def sentence():
    """Logits, labels, weights: three sequences, the last is padding."""
    rng = np.random.default_rng(2)
    return (
        rng.normal(size=(3, 2)).astype(np.float32),
        np.array([0, 1, 1]),
        np.array([1, 1, 0], np.float32),
    )


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("sop", "sentence_order"), ("nsp", "next_sentence"), ("none", None)],
)
def test_losses_and_metrics(masked_lm, sentence, name, prefix):
    outputs = {
        "masked_lm_logits": masked_lm[0],
        "sentence_order_logits": sentence[0],
    }
    features = {
        "masked_lm_ids": masked_lm[1],
        "masked_lm_weights": masked_lm[2],
        "sentence_order_labels": sentence[1],
        "example_weights": sentence[2],
    }
    objective = pretraining_objective(SENTENCE_OBJECTIVES[name])
    pairs = objective.losses(outputs, features)
    measured = {name: float(a / b) for name, (a, b) in pairs.items()}
    expected = {"masked_lm_loss": mean_loss(*masked_lm)}
    if prefix:
        expected[f"{prefix}_loss"] = mean_loss(*sentence)
    assert measured == pytest.approx(expected, rel=1e-6)

    pairs = objective.metrics(outputs, features)
    measured = {name: float(a / b) for name, (a, b) in pairs.items()}
    expected = {"masked_lm_accuracy": mean_correct(*masked_lm)}
    if prefix:
        expected[f"{prefix}_accuracy"] = mean_correct(*sentence)
    assert measured == pytest.approx(expected)


def test_classes(sentence):
    objective = head_objective("classification")
    features = {"label_ids": sentence[1], "example_weights": sentence[2]}
    ((total, weight),) = objective.losses(
        {"logits": sentence[0]}, features
    ).values()
    assert float(total / weight) == pytest.approx(mean_loss(*sentence))
    assert list(objective.metrics({"logits": sentence[0]}, features)) == [
        "accuracy"
    ]
