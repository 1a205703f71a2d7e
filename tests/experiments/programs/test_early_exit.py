"""Early exit, beside a loop over made-up predictions."""

import numpy as np
import pytest

from experiments.programs.early_exit import early_exit, exits


def test_a_prediction_is_final_once_two_applications_agree():
    predictions = np.array([[1, 1, 1, 1], [1, 2, 2, 2], [3, 2, 3, 1]])
    np.testing.assert_array_equal(exits(predictions), [2, 3, 3, 3])
    np.testing.assert_array_equal(exits(predictions[:2]), [2, 2, 2, 2])


def test_accuracy_is_that_of_the_final_predictions():
    rng = np.random.default_rng(3)
    predictions = rng.integers(3, size=(5, 200))
    labels = rng.integers(3, size=200)
    right, depths = [], []
    for answers, label in zip(predictions.T, labels, strict=True):
        depth = 2
        while depth < 5 and answers[depth - 1] != answers[depth - 2]:
            depth += 1
        depths.append(depth)
        right.append(answers[depth - 1] == label)
    found = early_exit(predictions, labels)
    assert found["applications"] == np.mean(depths)
    assert found["accuracy"] == np.mean(right)
    assert found["full_accuracy"] == np.mean(predictions[4] == labels)
    # Between the two fixed depths about the mean, by their distance from it.
    below, share = divmod(found["applications"], 1)
    lower, upper = (
        np.mean(predictions[int(depth) - 1] == labels)
        for depth in (below, below + 1)
    )
    expected = (1 - share) * lower + share * upper
    assert found["fixed_accuracy"] == pytest.approx(expected)
