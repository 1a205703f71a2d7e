"""Early exit: a prediction is final once two applications agree on it."""

import numpy as np


def exits(predictions: np.ndarray) -> np.ndarray:
    """Returns the number of applications of each prediction, `[n]`.

    `predictions` `[applications, n]`, of two applications or more, are those
    after each. It ends after the first application whose prediction is that
    of the application before, and after the last one at any rate.
    """
    agrees = predictions[1:] == predictions[:-1]
    agrees[-1] = True
    return 2 + agrees.argmax(axis=0)


def early_exit(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Returns the accuracy of early exit, and that of as many applications.

    `predictions` are as `exits` has them, `labels` `[n]`. The accuracy of the
    mean number of applications, all alike, is interpolated linearly.
    """
    count = exits(predictions)
    right = predictions == labels
    mean = float(count.mean())
    by_depth = right.mean(axis=1)
    return {
        "applications": mean,
        "most_applications": len(right),
        "accuracy": float(right[count - 1, np.arange(len(labels))].mean()),
        "fixed_accuracy": float(
            np.interp(mean, np.arange(1, len(right) + 1), by_depth)
        ),
        "full_accuracy": float(by_depth[-1]),
    }
