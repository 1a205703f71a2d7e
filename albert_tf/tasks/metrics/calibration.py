"""Calibration: whether probabilities are how often the answers are right.

Guo et al., 2017, "On Calibration of Modern Neural Networks".
"""

import dataclasses
import math

import numpy as np

_NUM_BINS = 15
# A temperature of the other parts has not seen the rows that it is used on.
_NUM_PARTS = 5
# The bounds of the setting `temperature`.
_LOWEST, _HIGHEST = 0.01, 100.0
# The standard deviation of its logarithm that is expected beforehand. Where
# all answers are right the likelihood alone has no best temperature.
_PRIOR_DEVIATION = 1.0


@dataclasses.dataclass(frozen=True)
class Reliability:
    """Answers by the probability that the model gives them.

    `confidences` and `accuracies` are the means of each bin that has examples,
    `counts` its examples; `error` is the expected calibration error: the mean
    distance of the two.
    """

    confidences: np.ndarray
    accuracies: np.ndarray
    counts: np.ndarray
    error: float


def fit_temperature(probabilities: np.ndarray, gold: np.ndarray) -> float:
    """Returns the temperature of the least negative log-likelihood.

    It divides the logits whose softmax is `probabilities`, `[rows, classes]`;
    `gold` has label ids, `[rows]`. Few rows leave it near 1, by a normal prior
    on its logarithm.
    """
    # SciPy takes half a second to import, and not every task needs it.
    from scipy.optimize import minimize_scalar

    logits = _logits(probabilities)

    def loss(log_temperature: float) -> float:
        scaled = _log_softmax(logits / math.exp(log_temperature))
        prior = (log_temperature / _PRIOR_DEVIATION) ** 2 / 2
        return prior - float(scaled[np.arange(len(gold)), gold].sum())

    bounds = math.log(_LOWEST), math.log(_HIGHEST)
    found = minimize_scalar(loss, bounds=bounds, method="bounded")
    return round(math.exp(found.x), 4)


def at_temperature(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Returns probabilities, `[..., classes]`, with their logits divided."""
    if temperature == 1.0:
        return probabilities
    return np.exp(_log_softmax(_logits(probabilities) / temperature))


def cross_fitted(probabilities: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Returns each fifth of the rows at the temperature of the others.

    These have not seen the answers that they are measured on.
    """
    found = np.empty(probabilities.shape)
    parts = np.arange(len(gold)) % _NUM_PARTS
    for part in set(parts.tolist()):
        mine, other = parts == part, parts != part
        temperature = fit_temperature(probabilities[other], gold[other])
        found[mine] = at_temperature(probabilities[mine], temperature)
    return found


def negative_log_likelihood(
    probabilities: np.ndarray, gold: np.ndarray
) -> float:
    """Returns the mean over the rows of `[rows, classes]`."""
    log_probabilities = _logits(probabilities)
    return -float(log_probabilities[np.arange(len(gold)), gold].mean())


def reliability(probabilities: np.ndarray, gold: np.ndarray) -> Reliability:
    """Returns the accuracy by confidence, in 15 bins of equal width."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == gold
    bins = np.minimum((confidence * _NUM_BINS).astype(int), _NUM_BINS - 1)
    counts = np.bincount(bins, minlength=_NUM_BINS)
    used = counts > 0
    confidences, accuracies = (
        np.bincount(bins, values, _NUM_BINS)[used] / counts[used]
        for values in (confidence, right)
    )
    distances = np.abs(confidences - accuracies)
    error = float(np.average(distances, weights=counts[used]))
    return Reliability(confidences, accuracies, counts[used], error)


def _logits(probabilities: np.ndarray) -> np.ndarray:
    values = probabilities.astype(np.float64)
    return np.log(np.maximum(values, np.finfo(np.float32).tiny))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
