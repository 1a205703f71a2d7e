"""Metrics, against counting."""

import numpy as np
import pytest

from albert_tf.tasks.metrics.scalar import accuracy


@pytest.mark.parametrize(
    ("labels", "predictions", "right"),
    [
        ([0, 1, 1, 2], [0, 1, 2, 2], 3 / 4),
        ([0, 0, 0], [1, 1, 1], 0.0),
        ([3], [3], 1.0),
        ([0, 1, 2, 3, 3], [3, 3, 3, 3, 3], 2 / 5),
    ],
)
def test_accuracy(labels, predictions, right):
    labels, predictions = np.array(labels), np.array(predictions)
    assert accuracy(labels, predictions) == pytest.approx(right)
