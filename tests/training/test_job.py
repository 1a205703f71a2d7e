"""Comparison of metrics."""

import pytest

from albert_tf.rundir.run_results import is_better
from albert_tf.training.job import is_loss


@pytest.mark.parametrize(
    ("metric", "lower"),
    [
        ("loss", True),
        ("loss_mismatched", True),
        ("masked_lm_perplexity", True),
        ("mean_squared_error", True),
        ("accuracy_mismatched", False),
        # This is no loss, though it begins so.
        ("lossless_accuracy", False),
    ],
)
def test_is_better(metric, lower):
    assert is_better(metric, 1.0, 2.0) is lower
    assert is_better(metric, 2.0, 1.0) is not lower
    assert not is_better(metric, 1.0, 1.0)
    assert is_loss(metric) == (lower and "loss" in metric)
