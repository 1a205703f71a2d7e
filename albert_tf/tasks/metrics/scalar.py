"""Metrics of gold and predicted label ids, or numbers."""

import math
import warnings
from collections.abc import Callable

import numpy as np


def accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the share of `predictions` [examples] equal to `labels`."""
    return float(np.mean(np.asarray(labels) == np.asarray(predictions)))


def f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns F1 of class 1 of two, 0 where it does not occur at all
    (scikit-learn)."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, zero_division=0.0))


def macro_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the mean F1 of the classes that occur (scikit-learn)."""
    from sklearn.metrics import f1_score

    found = f1_score(labels, predictions, average="macro", zero_division=0.0)
    return float(found)


def matthews_correlation(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns Matthews' correlation, 0 if undefined (scikit-learn)."""
    from sklearn.metrics import matthews_corrcoef

    with warnings.catch_warnings():
        # It warns where all labels are equal; 0 is documented above.
        warnings.simplefilter("ignore")
        return float(matthews_corrcoef(labels, predictions))


def pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns Pearson's correlation (SciPy); NaN where a side is constant."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, labels, predictions)


def spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns Spearman's rank correlation, ties sharing their mean rank
    (SciPy); NaN where a side is constant."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, labels, predictions)


def _correlation(
    function: Callable, labels: np.ndarray, predictions: np.ndarray
) -> float:
    if len(labels) < 2:
        return math.nan
    with warnings.catch_warnings():
        # The result is NaN.
        warnings.simplefilter("ignore")
        return float(function(labels, predictions).statistic)
