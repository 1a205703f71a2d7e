"""The paired bootstrap: an interval for the difference of two models."""

from collections.abc import Callable

import numpy as np

_SAMPLES = 1000
_LEVEL = 0.95


def paired_interval(
    first: Callable[[np.ndarray], float],
    second: Callable[[np.ndarray], float],
    num_examples: int,
) -> tuple[float, float]:
    """Returns the 95 % interval of a metric of one model minus another's.

    Both are functions of the numbers of examples. Percentiles of the
    difference on 1,000 samples of the examples with replacement, each sample
    for both models (Efron and Tibshirani, An Introduction to the Bootstrap,
    1993, chapter 13; Koehn, 2004, for systems on one test set). The samples
    are the same in every call. NaN where no sample has the metric.
    """
    rng = np.random.default_rng(0)
    differences = np.empty(_SAMPLES)
    for number in range(_SAMPLES):
        rows = rng.integers(num_examples, size=num_examples)
        differences[number] = first(rows) - second(rows)
    defined = differences[np.isfinite(differences)]
    if not len(defined):
        return np.nan, np.nan
    tail = (1 - _LEVEL) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)
