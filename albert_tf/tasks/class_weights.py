"""Weights of classes in the loss: balanced, or given by their names."""

import csv
import math
from collections.abc import Sequence

import numpy as np

from albert_tf.config import UserError, listed, require, shown

BALANCED = "balanced"
# Share of a class from which on the others are easily missed.
_MOST = 0.8
_QUOTES = (
    ". A label with a comma is quoted together with its weight, as in "
    "--class_weights='\"a, b:2\"'"
)


def class_weights(
    text: str, labels: Sequence[str], counts: np.ndarray
) -> np.ndarray:
    """Returns the weight of each class, float64 `[labels]`.

    Args:
        text: BALANCED, or `label:weight` with commas between them, a line of
            CSV; classes without one weigh 1.
        labels: names of the classes.
        counts: examples of each class, of which `balanced` takes the inverse.

    Raises:
        UserError: for another text, and for a label that is no class.
    """
    if text == BALANCED:
        return balanced(counts)
    found: dict[str, float] = {}
    advice = _QUOTES if any("," in label for label in labels) else ""
    try:
        entries = next(csv.reader([text], skipinitialspace=True))
    except csv.Error:
        raise UserError(
            f"class_weights={shown(text)}: expected a single line."
        ) from None
    for entry in entries:
        label, _, number = (part.strip() for part in entry.rpartition(":"))
        require(
            label in labels,
            f"class_weights={shown(text)}: expected balanced, or label:weight "
            f"for some of {listed(labels, 12)}, got {shown(entry)}{advice}.",
        )
        require(
            label not in found,
            f"class_weights={shown(text)} names {shown(label)} twice.",
        )
        try:
            found[label] = float(number)
        except ValueError:
            found[label] = math.nan
        require(
            0 < found[label] < math.inf,
            f"class_weights: expected a number above 0 for {shown(label)}, got "
            f"{shown(number)}.",
        )
    return np.array([found.get(label, 1.0) for label in labels])


def balanced(counts: np.ndarray) -> np.ndarray:
    """Returns weights with which every class weighs the same in all examples.

    The examples by the number of classes and those of a class, as
    scikit-learn's compute_class_weight; 1 for a class without any.
    """
    occurring = counts > 0
    mean = counts.sum() / max(occurring.sum(), 1)
    return np.where(occurring, mean / np.maximum(counts, 1), 1.0)


def imbalance(
    labels: Sequence[str], counts: np.ndarray, advice: Sequence[str]
) -> str:
    """Returns a line on a class that most examples are of; "" without one.

    `advice` is what to try; without any there is no line.
    """
    most = int(counts.argmax())
    share = counts[most] / counts.sum()
    if share < _MOST or not advice:
        return ""
    return (
        f"{counts[most]:,} of the {counts.sum():,} training examples are of "
        f"the class {shown(labels[most])}; if the others are missed, try "
        f"{' and '.join(advice)}."
    )
