"""Losses and their weights against NumPy."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import softmax

from albert_tf.modeling.losses import (
    negative_log_likelihood,
    weighted_binary_cross_entropy,
    weighted_correct,
    weighted_cross_entropy,
    weighted_squared_error,
)


def random_batch(shape):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(*shape, 5)).astype("float32") * 3
    labels = rng.integers(0, 5, shape)
    weights = rng.choice([0.0, 1.0, 0.5], shape).astype("float32")
    return logits, labels, weights


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_large_logits_stay_finite_and_float32(dtype):
    logits = tf.cast([[3e4, -3e4, 0.0], [-3e4, -3e4, -3e4]], dtype)
    loss = negative_log_likelihood(logits, [1, 2])
    assert loss.dtype == tf.float32
    exact = tf.cast(logits, "float64").numpy()
    expected = [exact[0, 0] - exact[0, 1], np.log(3)]
    # Beside 3e4, log 3 has float32's steps of 0.002.
    np.testing.assert_allclose(loss, expected, atol=4e-3)


@pytest.mark.parametrize("label", [-1, 3, 100])
def test_a_label_without_a_class_has_no_loss(label):
    logits, labels = np.zeros((2, 3), "float32"), np.array([1, label])
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        found = negative_log_likelihood(logits, labels)
    gradient = tape.gradient(found, logits).numpy()
    assert found[0].numpy() == pytest.approx(np.log(3))
    assert np.isnan(found[1])
    np.testing.assert_allclose(gradient[0], [1 / 3, -2 / 3, 1 / 3], rtol=1e-6)
    assert not gradient[1].any()


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    ("dtype", "atol"), [("float32", 1e-6), ("bfloat16", 4e-3)]
)
def test_the_gradient_is_the_softmax_less_the_label(dtype, atol, jit_compile):
    logits, labels, weights = random_batch((4, 3))
    logits = tf.cast(logits, dtype)

    @functools.partial(tf.function, jit_compile=jit_compile)
    def gradient(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss, _ = weighted_cross_entropy(logits, labels, weights)
        return tape.gradient(loss, logits)

    found = gradient(logits)
    assert found.dtype == dtype
    exact = tf.cast(logits, "float64").numpy()
    expected = softmax(exact) - np.eye(5)[labels]
    scale = atol * max(weights.max(), 1)
    np.testing.assert_allclose(
        tf.cast(found, "float64"), expected * weights[..., None], atol=scale
    )


@pytest.mark.parametrize("logit", [-1e30, -3e4, 3e4])
def test_the_gradient_of_large_logits_is_exact(logit):
    logits = tf.constant([[logit] * 3])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = negative_log_likelihood(logits, [1])
    assert loss.numpy() == pytest.approx([np.log(3)], rel=1e-6)
    np.testing.assert_allclose(
        tape.gradient(loss, logits), [[1 / 3, -2 / 3, 1 / 3]], rtol=1e-6
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_sure_answer_costs_its_logit(dtype):
    """Where the sigmoid itself has become 0 or 1."""
    logits = tf.cast([3e4, -3e4, 3e4, -3e4], dtype)
    labels = [1, 0, 0, 1]
    total, weight = weighted_binary_cross_entropy(logits, labels, None)
    assert total.dtype == weight.dtype == tf.float32
    assert float(total) == pytest.approx(6e4, rel=1e-3)
    total, _ = weighted_squared_error(logits, labels, None)
    assert np.isfinite(total) and total.dtype == tf.float32


def test_correct_is_the_weight_of_the_hits():
    logits, labels, weights = random_batch((5, 4))
    labels[0] = logits[0].argmax(-1)
    weights[0] = 0.5
    expected = (weights * (logits.argmax(-1) == labels)).sum()
    assert expected >= 2
    assert float(weighted_correct(logits, labels, weights)) == expected
    assert float(weighted_correct(logits, labels, 0 * weights)) == 0


def test_a_column_of_labels_is_as_good_as_a_row():
    rng = np.random.default_rng(4)
    scores = rng.normal(size=5).astype("float32")
    values = rng.normal(size=5).astype("float32")
    logits = rng.normal(size=(5, 3)).astype("float32")
    labels = rng.integers(3, size=5)
    for loss, outputs, row in (
        (weighted_squared_error, scores, values),
        (weighted_binary_cross_entropy, scores, labels % 2),
        (weighted_cross_entropy, logits, labels),
    ):
        wanted = loss(outputs, row, None)
        found = loss(outputs, row[:, None], None)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert float(found[1]) == 5


def test_labels_that_weigh_nothing_may_be_anything():
    scores = tf.constant([0.5, 2.0])
    for loss, outputs, label in (
        (weighted_squared_error, scores, np.nan),
        (weighted_binary_cross_entropy, scores, np.nan),
        (weighted_cross_entropy, tf.stack([scores, -scores], axis=-1), -100),
    ):
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            total, weight = loss(outputs, np.array([1, label]), [1.0, 0.0])
        gradient = tape.gradient(total, outputs).numpy()
        assert np.isfinite(total) and float(weight) == 1
        assert np.isfinite(gradient).all() and not gradient[1].any()
