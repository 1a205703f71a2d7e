"""Metrics of tasks: pure functions of labels and predictions."""

import numpy as np


def accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the share of `predictions` [examples] equal to `labels`."""
    return float(np.mean(np.asarray(labels) == np.asarray(predictions)))


def majority_class_accuracy(
    labels: np.ndarray, predictions: np.ndarray | None = None
) -> float:
    """Returns the accuracy of always answering the most frequent label."""
    _, counts = np.unique(labels, return_counts=True)
    return float(counts.max() / counts.sum())
