"""Temperatures, and how far probabilities are from being right."""

import numpy as np
import pytest

from albert_tf.tasks.metrics.calibration import (
    at_temperature,
    cross_fitted,
    fit_temperature,
    negative_log_likelihood,
    reliability,
)


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def drawn(count, temperature, seed=0):
    """Logits, and labels that follow them at a temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, 4)) * 3
    cumulated = softmax(logits / temperature).cumsum(axis=1)
    labels = (rng.random((count, 1)) > cumulated).sum(axis=1)
    return logits, labels


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_of_the_labels_is_found(temperature):
    logits, labels = drawn(20000, temperature)
    found = fit_temperature(softmax(logits), labels)
    assert found == pytest.approx(temperature, rel=0.05)


def test_no_other_temperature_of_a_grid_has_a_lower_loss():
    logits, labels = drawn(300, 2.0)

    def loss(temperature):
        chosen = softmax(logits / temperature)[np.arange(300), labels]
        return np.log(temperature) ** 2 / 2 - np.log(chosen).sum()

    found = fit_temperature(softmax(logits), labels)
    grid = np.linspace(0.3, 8, 400)
    assert loss(found) < min(map(loss, grid)) + 1e-3


def test_labels_that_are_all_right_sharpen_no_further_than_few_rows_can():
    probabilities = np.array([[0.9, 0.1]] * 10)
    found = fit_temperature(probabilities, np.zeros(10, int))
    assert 0.3 < found < 1
    assert fit_temperature(probabilities[:1], np.zeros(1, int)) > found


def test_logits_are_divided():
    logits, _ = drawn(50, 1.0)
    found = at_temperature(softmax(logits), 2.5)
    np.testing.assert_allclose(found, softmax(logits / 2.5), rtol=1e-9)
    assert (found.argmax(axis=1) == logits.argmax(axis=1)).all()


def test_probabilities_of_zero_and_one():
    certain = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    assert np.isfinite(negative_log_likelihood(certain, np.array([1, 1])))
    assert 1 < fit_temperature(certain, np.array([1, 1])) <= 100
    assert np.isfinite(at_temperature(certain, 3.0)).all()


def test_the_error_of_bins_by_hand():
    confidences = np.array([0.95, 0.95, 0.95, 0.95, 0.7, 0.7])
    probabilities = np.stack([confidences, 1 - confidences], axis=1)
    # 3 of 4 and 1 of 2 answers are right.
    found = reliability(probabilities, np.array([0, 0, 0, 1, 0, 1]))
    np.testing.assert_allclose(found.confidences, [0.7, 0.95])
    np.testing.assert_allclose(found.accuracies, [0.5, 0.75])
    assert found.counts.tolist() == [2, 4]
    assert found.error == pytest.approx((2 * 0.2 + 4 * 0.2) / 6)
    sure = reliability(np.array([[1.0, 0.0]]), np.array([0]))
    assert sure.error == 0


def test_a_probability_of_one_is_in_the_last_bin():
    probabilities = np.array([[1.0, 0.0], [0.96, 0.04]])
    found = reliability(probabilities, np.array([0, 1]))
    assert found.counts.tolist() == [2]
    assert found.error == pytest.approx(0.98 - 0.5)


def test_the_loss_is_the_mean():
    probabilities = np.array([[0.5, 0.5], [0.2, 0.8]])
    found = negative_log_likelihood(probabilities, np.array([0, 1]))
    assert found == pytest.approx(-(np.log(0.5) + np.log(0.8)) / 2)


def test_a_fifth_has_the_temperature_of_the_others():
    logits, labels = drawn(400, 2.0)
    before = cross_fitted(softmax(logits), labels)
    changed = labels.copy()
    changed[::5] = (labels[::5] + 1) % 4
    after = cross_fitted(softmax(logits), changed)
    np.testing.assert_array_equal(before[::5], after[::5])
    for part in range(1, 5):
        assert np.abs(before[part::5] - after[part::5]).max() > 0.05
    # Fewer rows than parts.
    few = cross_fitted(softmax(logits[:3]), labels[:3])
    assert np.isfinite(few).all()
