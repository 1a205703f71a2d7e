"""Metrics of examples with any number of labels, and thresholds for them.

The values are scikit-learn's: the mean over labels (macro) has 0 for a label
without examples. Weights are how often each example counts, for samples; what
a sample alone lacks is left out of its mean.
"""

from collections.abc import Callable

import numpy as np

# A metric of some of the examples: of their weights, [examples].
OfWeights = Callable[[np.ndarray], float]


def metrics_of(
    gold: np.ndarray, scores: np.ndarray, predicted: np.ndarray
) -> dict[str, OfWeights]:
    """Returns the metrics by name, as functions of the examples' weights.

    Args:
        gold: bool `[examples, labels]`.
        scores: the higher, the likelier a label is; of the same shape.
        predicted: bool, likewise.
    """
    right = (gold == predicted).all(axis=1)
    counts = np.stack([gold & predicted, gold, predicted]).astype(np.int64)
    every = ranking(gold.ravel(), scores.ravel())
    of_labels = [ranking(*pair) for pair in zip(gold.T, scores.T, strict=True)]
    num_labels = gold.shape[1]

    def macro(values: np.ndarray, weights: np.ndarray) -> float:
        lacking = gold.any(axis=0) & ~(weights @ gold).astype(bool)
        return float(values @ ~lacking / max((~lacking).sum(), 1))

    return {
        "micro_average_precision": lambda weights: every(
            np.repeat(weights, num_labels)
        ),
        "macro_average_precision": lambda weights: macro(
            np.array([of_label(weights) for of_label in of_labels]), weights
        ),
        "micro_f1": lambda weights: float(
            _f1(*np.einsum("kel,e->k", counts, weights))
        ),
        "macro_f1": lambda weights: macro(
            _f1(*np.einsum("kel,e->kl", counts, weights)), weights
        ),
        "exact_match": lambda weights: float(
            np.average(right, weights=weights)
        ),
    }


def _f1(
    both: np.ndarray, gold: np.ndarray, predicted: np.ndarray
) -> np.ndarray:
    """Returns F1 of these numbers of labels, 0 where there are none."""
    return 2 * both / np.maximum(gold + predicted, 1)


def ranking(gold: np.ndarray, scores: np.ndarray) -> OfWeights:
    """Returns the average precision of scores `[values]`.

    The mean precision over the gold ones, each among the values with scores
    from its own up; 0 without any.
    """
    order, ends = _ranked(scores)
    gold = gold[order]

    def average_precision(weights: np.ndarray) -> float:
        weights = weights[order]
        found = np.cumsum(weights * gold)[ends]
        if not found[-1]:
            return 0.0
        precision = found / np.maximum(np.cumsum(weights)[ends], 1)
        return float(np.diff(found, prepend=0) @ precision / found[-1])

    return average_precision


def best_threshold(gold: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """Returns the threshold of the highest F1 of scores `[values]`, and that.

    It is midway between two scores: the last digits of these change with the
    hardware. 0.5, and F1 0, where nothing is gold.
    """
    order, ends = _ranked(scores)
    found = np.cumsum(gold[order])[ends]
    if not found[-1]:
        return 0.5, 0.0
    f1 = 2 * found / (ends + 1 + found[-1])
    best = int(f1.argmax())
    levels = np.append(scores[order][ends], 0.0)
    return float(levels[best : best + 2].mean()), float(f1[best])


def _ranked(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the order of scores, the highest first, and the ends of ties."""
    order = np.argsort(-scores, kind="stable")
    return order, np.flatnonzero(np.append(np.diff(scores[order]), 1))
