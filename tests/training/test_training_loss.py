"""An loss computes what NumPy does from weighted labels."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.inputs import ENCODER_INPUTS
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.training.training_loss import head_loss, pretraining_loss


@pytest.fixture
def outputs():
    random = np.random.default_rng(1)
    return {
        "masked_lm_logits": random.normal(size=(3, 4, 5)).astype(np.float32),
        "sentence_order_logits": random.normal(size=(3, 2)).astype(np.float32),
    }


@pytest.fixture
def features():
    return {
        "masked_lm_ids": np.array([[1, 2, 0, 0], [4, 0, 0, 0], [3, 3, 1, 2]]),
        "masked_lm_weights": np.array(
            [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]], np.float32
        ),
        "sentence_order_labels": np.array([1, 0, 1]),
        # The second row only fills the batch.
        "example_weights": np.array([1, 0, 1], np.float32),
    }


def labels_and_weights(features):
    """Yields the prefix of each target's outputs, labels and weights."""
    yield (
        "masked_lm",
        features["masked_lm_ids"],
        features["masked_lm_weights"],
    )
    yield (
        "sentence_order",
        features["sentence_order_labels"],
        features["example_weights"],
    )


def numbers(pairs):
    return {name: tuple(float(x) for x in pair) for name, pair in pairs.items()}


def test_losses_are_weighted_sums_with_their_weights(outputs, features):
    loss = pretraining_loss(SENTENCE_OBJECTIVES["sop"])
    expected = {}
    for name, labels, weights in labels_and_weights(features):
        logits = outputs[f"{name}_logits"].astype(np.float64)
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        chosen = np.take_along_axis(log_probs, labels[..., None], -1)[..., 0]
        expected[f"{name}_loss"] = (-(chosen * weights).sum(), weights.sum())
    losses = numbers(loss.losses(outputs, features))
    assert losses.keys() == expected.keys()
    for name, pair in expected.items():
        assert losses[name] == pytest.approx(pair, rel=1e-6)
    weights = loss.label_weights(features)
    assert {name: float(weight) for name, weight in weights.items()} == {
        name: weight for name, (_, weight) in expected.items()
    }


def test_accuracies_count_the_weighted_labels_alone(outputs, features):
    loss = pretraining_loss(SENTENCE_OBJECTIVES["sop"])
    # Both heads are right about the first label, and where nothing counts.
    outputs["masked_lm_logits"][0, 0, 1] = 9
    outputs["masked_lm_logits"][1, 1:, 0] = 9
    outputs["sentence_order_logits"][:2] = [[0, 9], [9, 0]]
    expected = {}
    for name, labels, weights in labels_and_weights(features):
        hits = outputs[f"{name}_logits"].argmax(-1) == labels
        expected[f"{name}_accuracy"] = (
            (hits * weights).sum(),
            weights.sum(),
        )
    assert numbers(loss.metrics(outputs, features)) == expected


def test_baselines_count_each_class(outputs, features):
    loss = pretraining_loss(SENTENCE_OBJECTIVES["sop"])
    counts = loss.label_counts(outputs, features)
    assert {name: count.numpy().tolist() for name, count in counts.items()} == {
        "most_frequent_token_accuracy": [0, 2, 2, 2, 1],
        "majority_order_accuracy": [0, 2],
    }


def test_only_the_sentence_loss_has_the_given_weight():
    loss = pretraining_loss(SENTENCE_OBJECTIVES["sop"], 0.3)
    assert {row.loss: row.loss_weight for row in loss.terms} == {
        "masked_lm_loss": 1.0,
        "sentence_order_loss": 0.3,
    }


def test_the_shares_of_pieces_are_the_weighted_means_over_a_batch(
    outputs, features
):
    loss = pretraining_loss(SENTENCE_OBJECTIVES["sop"], 0.3)
    label_weights = loss.label_weights(features)
    factors = loss.factors(label_weights, 4.0)
    pieces = [
        loss.losses(
            {name: value[rows] for name, value in outputs.items()},
            {name: value[rows] for name, value in features.items()},
        )
        for rows in (slice(0, 1), slice(1, 3))
    ]
    shares = [float(loss.minimized(piece, factors)) for piece in pieces]
    whole = loss.losses(outputs, features)
    masked_lm, order = (t / w for t, w in numbers(whole).values())
    assert sum(shares) == pytest.approx(4 * (masked_lm + 0.3 * order))
    assert float(loss.reported(whole, label_weights)) == pytest.approx(
        masked_lm + order
    )


def test_a_loss_of_weight_0_is_reported_alone(outputs, features):
    loss = pretraining_loss(SENTENCE_OBJECTIVES["sop"], 0.0)
    label_weights = loss.label_weights(features)
    assert loss.factors(label_weights, 1.0).keys() == {"masked_lm_loss"}
    assert loss.losses(outputs, features).keys() == label_weights.keys()


def test_a_head_with_classes_has_an_accuracy():
    logits = np.array([[0, 1], [1, 0], [0, 1]], np.float32)
    features = {
        "label_ids": np.array([1, 1, 0]),
        "example_weights": np.array([1, 1, 0], np.float32),
    }
    loss = head_loss("classification")
    metrics = loss.metrics({"logits": logits}, features)
    assert numbers(metrics) == {"accuracy": (1.0, 2.0)}
    # Tasks compute their baselines from all labels.
    assert loss.label_counts({"logits": logits}, features) == {}


def test_a_head_without_classes_has_a_loss_alone():
    loss = head_loss("regression")
    predictions = tf.constant([1.0, 3.0])
    features = {
        "label_ids": np.array([2.0, 0.0], np.float32),
        "example_weights": np.array([1, 0], np.float32),
    }
    assert loss.metrics({"predictions": predictions}, features) == {}
    losses = loss.losses({"predictions": predictions}, features)
    assert numbers(losses) == {"loss": (1.0, 1.0)}


def test_features_of_the_sequence_are_cut_with_it():
    loss = head_loss("token_classification")
    assert loss.sequence_features == {
        *ENCODER_INPUTS,
        "label_ids",
        "label_weights",
    }
