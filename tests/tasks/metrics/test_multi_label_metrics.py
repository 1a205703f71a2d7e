"""Metrics of several labels: scikit-learn's, and thresholds by F1."""

import warnings

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, average_precision_score, f1_score

from albert_tf.tasks.metrics.multi_label import best_threshold, metrics_of


def drawn(seed, examples=40, labels=5):
    """Returns gold labels, scores with ties, and predicted labels."""
    rng = np.random.default_rng(seed)
    gold = rng.random((examples, labels)) < 0.3
    # A label without examples, which nothing predicts either.
    gold[:, -1] = False
    scores = np.round(0.3 * gold + rng.random(gold.shape), 1) / 2
    return gold, scores, (scores > 0.4) & (np.arange(labels) < labels - 1)


def scikit_learns(gold, scores, predicted):
    with warnings.catch_warnings():
        # It warns of a label without examples, which counts 0.
        warnings.simplefilter("ignore")
        return {
            **{
                f"{average}_average_precision": average_precision_score(
                    gold, scores, average=average
                )
                for average in ("micro", "macro")
            },
            **{
                f"{average}_f1": f1_score(
                    gold, predicted, average=average, zero_division=0
                )
                for average in ("micro", "macro")
            },
            "exact_match": accuracy_score(gold, predicted),
        }


@pytest.mark.parametrize("seed", range(5))
def test_the_values_are_scikit_learns(seed):
    arrays = drawn(seed)
    once = np.ones(len(arrays[0]), np.int64)
    found = {n: metric(once) for n, metric in metrics_of(*arrays).items()}
    assert found == pytest.approx(scikit_learns(*arrays))


def test_of_a_sample_with_repeated_examples():
    arrays = drawn(7)
    rows = np.random.default_rng(1).integers(0, 40, 40)
    weights = np.bincount(rows, minlength=40)
    found = {n: metric(weights) for n, metric in metrics_of(*arrays).items()}
    sample = [array[rows] for array in arrays]
    assert found == pytest.approx(scikit_learns(*sample))


def test_a_label_that_a_sample_alone_lacks_is_left_out():
    gold = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]], bool)
    found = metrics_of(gold, gold.astype(float), gold)
    for name in ("macro_f1", "macro_average_precision"):
        assert found[name](np.ones(3, int)) == pytest.approx(2 / 3)
        assert found[name](np.array([3, 0, 0])) == 0.5
        assert found[name](np.zeros(3, int)) == 0.0


@pytest.mark.parametrize("seed", range(2))
def test_no_threshold_has_a_higher_f1(seed):
    gold, scores, _ = drawn(seed)
    gold, scores = gold.ravel(), scores.ravel()
    threshold, f1 = best_threshold(gold, scores)
    assert f1_score(gold, scores > threshold) == pytest.approx(f1)
    others = np.linspace(0, 1, 101)
    assert f1 >= max(f1_score(gold, scores > other) for other in others) - 1e-9
    # The threshold is as far as can be from the scores beside it.
    assert np.abs(scores - threshold).min() >= 0.02


def test_a_threshold_where_nothing_is_gold():
    assert best_threshold(np.zeros(3, bool), np.ones(3)) == (0.5, 0.0)
