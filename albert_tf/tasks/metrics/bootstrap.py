"""The paired bootstrap: an interval for the difference of two models."""

from collections.abc import Callable

import numpy as np

_SAMPLES = 1000
_LEVEL = 0.95
# A bias of fewer standard errors may be that of the samples.
_CHANCE = 3.0


def paired_interval(
    first: Callable[[np.ndarray], float],
    second: Callable[[np.ndarray], float],
    num_examples: int,
) -> tuple[float, float]:
    """Returns the 95 % interval of a metric of one model minus another's.

    Both are functions of the numbers of examples. Percentiles of the
    difference on 1,000 samples of the examples with replacement, each sample
    for both models (Efron and Tibshirani, An Introduction to the Bootstrap,
    1993, chapter 13; Koehn, 2004, for systems on one test set). Of a metric
    that samples bias, as macro F1 is where they lack a rare class, they are
    shifted by the bias, within the values of the samples. The samples are the
    same in every call. NaN where no sample has the metric.
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
    ends = np.quantile(defined, [tail, 1 - tail])
    every = np.arange(num_examples)
    value = first(every) - second(every)
    bias = defined.mean() - value
    if abs(bias) > _CHANCE * defined.std() / np.sqrt(len(defined)):
        low, high = min(defined.min(), value), max(defined.max(), value)
        ends = np.clip(ends - bias, low, high)
    return float(ends[0]), float(ends[1])
