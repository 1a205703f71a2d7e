"""The paired bootstrap, against SciPy's and the normal interval."""

import math

import numpy as np
import pytest
from scipy import stats

from albert_tf.tasks.metrics.bootstrap import paired_interval


def two_models(count=600):
    """Returns whether two models are right, which agree mostly."""
    rng = np.random.default_rng(3)
    first = rng.random(count) < 0.8
    second = np.where(rng.random(count) < 0.1, ~first, first)
    return first, second


def test_the_normal_interval_of_paired_differences():
    first, second = two_models()
    low, high = paired_interval(
        lambda rows: first[rows].mean(),
        lambda rows: second[rows].mean(),
        len(first),
    )
    difference = first.astype(float) - second
    half = 1.96 * difference.std(ddof=1) / math.sqrt(len(first))
    mean = difference.mean()
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.003)
    # Without the pairs it is more than twice as wide.
    assert high - low < 2 * 1.96 * math.sqrt(2 * 0.16 / len(first)) / 1.5


def test_correlations_against_scipy():
    rng = np.random.default_rng(1)
    gold = rng.normal(size=200)
    near, far = (gold + rng.normal(scale=s, size=200) for s in (0.5, 1.5))

    def pearson(predicted):
        return lambda rows: np.corrcoef(gold[rows], predicted[rows])[0, 1]

    def difference(gold, near, far):
        return np.corrcoef(gold, near)[0, 1] - np.corrcoef(gold, far)[0, 1]

    expected = stats.bootstrap(
        (gold, near, far),
        difference,
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=2000,
        rng=np.random.default_rng(2),
    ).confidence_interval
    found = paired_interval(pearson(near), pearson(far), 200)
    assert found == pytest.approx(tuple(expected), abs=0.02)


def test_an_interval_is_shifted_by_the_bias_of_the_samples():
    # Samples have 63 % of the examples, of which each is a class.
    low, high = paired_interval(
        lambda rows: len(set(rows)) / 20, lambda rows: 0.0, 20
    )
    assert 0.8 < low < high == 1.0


def test_it_is_the_same_each_time():
    first, second = two_models(50)
    sides = (lambda rows: first[rows].mean(), lambda rows: second[rows].mean())
    assert paired_interval(*sides, 50) == paired_interval(*sides, 50)


def test_metrics_that_are_not_defined():
    found = paired_interval(lambda rows: math.nan, lambda rows: 1.0, 5)
    assert np.isnan(found).all()
