"""The rows of what is predicted, and the losses made from them."""

import collections

import numpy as np
import pytest

from albert_tf.records.sentence_objectives import (
    SENTENCE_OBJECTIVES,
    pretraining_targets,
)
from albert_tf.training.objectives import pretraining_objective


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


RNG = np.random.default_rng(1)
# Logits, labels and weights of four slots in three sequences, nine pieces.
MASKED_LM = (
    RNG.normal(size=(3, 4, 9)).astype(np.float32),
    RNG.integers(9, size=(3, 4)),
    np.array([[1, 1, 1, 0]] * 3, np.float32),
)
# Of three sequences, the last of which is padding.
SENTENCE = (
    RNG.normal(size=(3, 2)).astype(np.float32),
    np.array([0, 1, 1]),
    np.array([1, 1, 0], np.float32),
)


def means(pairs):
    return {
        name: float(total / weight) for name, (total, weight) in pairs.items()
    }


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("sop", "sentence_order"), ("nsp", "next_sentence"), ("none", None)],
)
def test_losses_and_metrics(name, prefix):
    outputs = {
        "masked_lm_logits": MASKED_LM[0],
        "sentence_order_logits": SENTENCE[0],
    }
    features = {
        "masked_lm_ids": MASKED_LM[1],
        "masked_lm_weights": MASKED_LM[2],
        "sentence_order_labels": SENTENCE[1],
        "example_weights": SENTENCE[2],
    }
    losses = {"masked_lm_loss": mean_loss(*MASKED_LM)}
    metrics = {"masked_lm_accuracy": mean_correct(*MASKED_LM)}
    if prefix:
        losses[f"{prefix}_loss"] = mean_loss(*SENTENCE)
        metrics[f"{prefix}_accuracy"] = mean_correct(*SENTENCE)
    objective = pretraining_objective(SENTENCE_OBJECTIVES[name])
    found = means(objective.losses(outputs, features))
    assert found == pytest.approx(losses, rel=1e-6)
    assert means(objective.metrics(outputs, features)) == pytest.approx(metrics)
