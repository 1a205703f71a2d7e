"""Metrics, against counting."""

import numpy as np
import pytest

from albert_tf.tasks.metrics import accuracy, majority_class_accuracy


@pytest.mark.parametrize(
    ("labels", "predictions", "right", "majority"),
    [
        ([0, 1, 1, 2], [0, 1, 2, 2], 3 / 4, 2 / 4),
        ([0, 0, 0], [1, 1, 1], 0.0, 1.0),
        ([3], [3], 1.0, 1.0),
        ([0, 1, 2, 3, 3], [3, 3, 3, 3, 3], 2 / 5, 2 / 5),
    ],
)
def test_accuracies(labels, predictions, right, majority):
    labels, predictions = np.array(labels), np.array(predictions)
    assert accuracy(labels, predictions) == pytest.approx(right)
    assert majority_class_accuracy(labels, predictions) == pytest.approx(
        majority
    )
