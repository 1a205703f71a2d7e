"""Probabilities of classes: how right they are, and what shows it."""

from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.tasks.kinds.base import (
    ConfusionMatrix,
    Distributions,
    Figure,
    Metric,
    Table,
)
from albert_tf.tasks.metrics.scalar import precision_recall_f1

# Labels that a message names, and a figure shows.
_NAMED = 12
_DRAWN = 100


def listed(labels: Sequence[str]) -> str:
    """Returns labels for a message: one line, and not all of many."""
    shown = ", ".join(
        label[:60] if label.isprintable() else repr(label[:60])
        for label in labels[:_NAMED]
    )
    more = len(labels) - _NAMED
    return f"{shown} and {more} others" if more > 0 else shown


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities over the last axis, float64."""
    logits = logits.astype(np.float64)
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def class_metrics(
    numbers: np.ndarray,
    probabilities: Sequence[np.ndarray],
    metrics: Mapping[str, Metric],
) -> dict[str, float]:
    """Returns metrics of the likeliest classes and of the most frequent one.

    `majority_class_<metric>` is what always answering the class that is most
    frequent in these very examples reaches.
    """
    found = np.array([row.argmax() for row in probabilities])
    classes, counts = np.unique(numbers, return_counts=True)
    guess = np.full_like(numbers, classes[counts.argmax()])
    measures = {
        name: metric(numbers, found) for name, metric in metrics.items()
    }
    return measures | {
        f"majority_class_{name}": metric(numbers, guess)
        for name, metric in metrics.items()
    }


def constant_class(
    probabilities: Sequence[np.ndarray], labels: Sequence[str]
) -> str | None:
    """Returns the label that is the likeliest everywhere, if there is one."""
    classes = {int(row.argmax()) for row in probabilities}
    if len(classes) > 1 or len(probabilities) < 2:
        return None
    return labels[classes.pop()]


def class_figure(
    numbers: np.ndarray, probabilities: np.ndarray, labels: Sequence[str]
) -> Figure:
    """Returns which labels were given for which.

    With very many labels, how sure the model is of right and wrong ones.

    Args:
        numbers: of the labels, `[examples]`.
        probabilities: `[examples, labels]`.
        labels: their names.
    """
    found = probabilities.argmax(axis=1)
    if len(labels) > _DRAWN:
        sure, right = probabilities.max(axis=1), found == numbers
        return Distributions(
            "probability of the answer",
            {"right": sure[right], "wrong": sure[~right]},
        )
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (numbers, found), 1)
    return ConfusionMatrix(list(labels), counts)


def label_table(
    numbers: np.ndarray, found: np.ndarray, labels: Sequence[str]
) -> Table:
    """Returns precision, recall, F1 and the number of each label."""
    columns = precision_recall_f1(numbers, found, len(labels))
    return Table(
        ["label", "precision", "recall", "f1", "examples"],
        [
            [label, *(f"{value:.4f}" for value in row[:3]), f"{row[3]:.0f}"]
            for label, row in zip(labels, columns.T, strict=True)
        ],
    )


def class_error(probabilities: np.ndarray, right: int | None) -> float:
    """Returns by how much the answer is likelier than the right one."""
    if right is None:
        return 0.0
    return float(probabilities.max() - probabilities[right])
