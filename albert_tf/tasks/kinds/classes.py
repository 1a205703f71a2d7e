"""What kinds share that predict classes, of examples or of their words."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import FeatureConfig
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.base import (
    Answers,
    ConfusionMatrix,
    Distributions,
    Figure,
    Kind,
    Metric,
    Outputs,
)

# Labels that a confusion matrix has at most.
_MAX_MATRIX_LABELS = 100


class ClassKind(Kind):
    """A kind whose scores are probabilities.

    Those of an example are `[classes]`, or `[words, classes]`.
    """

    def class_names(self, answers: Answers) -> Sequence[str]:
        """Returns the names of the classes."""
        return answers.labels

    def scores(
        self,
        examples: Sequence[Any],
        features: Features,
        outputs: Outputs,
        config: FeatureConfig,
    ) -> list[np.ndarray]:
        """Returns the probabilities of each example."""
        return list(softmax(np.array(outputs["logits"])))

    def compute_metrics(
        self, answers: Answers, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the metrics, and those of a majority-class baseline.

        `majority_class_<metric>` is the score of always predicting the class
        that is most frequent in these examples.
        """
        label_ids = self.label_ids(answers.examples, answers.labels)
        predicted = _probabilities(answers).argmax(axis=1)
        majority = np.full_like(label_ids, np.bincount(label_ids).argmax())
        return {
            name: metric(label_ids, predicted)
            for name, metric in metrics.items()
        } | {
            f"majority_class_{name}": metric(label_ids, majority)
            for name, metric in metrics.items()
        }

    def figure(self, answers: Answers) -> Figure:
        """Returns a confusion matrix.

        With very many labels, the probabilities of right and wrong
        predictions.
        """
        label_ids = self.label_ids(answers.examples, answers.labels)
        probabilities = _probabilities(answers)
        predicted = probabilities.argmax(axis=1)
        names = list(self.class_names(answers))
        if len(names) > _MAX_MATRIX_LABELS:
            highest, right = probabilities.max(axis=1), predicted == label_ids
            return Distributions(
                "probability of the answer",
                {"right": highest[right], "wrong": highest[~right]},
            )
        counts = np.zeros((len(names), len(names)), np.int64)
        np.add.at(counts, (label_ids, predicted), 1)
        return ConfusionMatrix(names, counts)

    def constant_prediction(self, answers: Answers) -> str | None:
        """Returns the class that all examples, or words, are given."""
        classes = _probabilities(answers).argmax(axis=1)
        if len(classes) < 2 or classes.min() < classes.max():
            return None
        return self.class_names(answers)[classes[0]]


def _probabilities(answers: Answers) -> np.ndarray:
    return np.concatenate([np.atleast_2d(row) for row in answers.scores])


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities over the last axis, float64."""
    logits = logits.astype(np.float64)
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def class_error(probabilities: np.ndarray, label_id: int | None) -> float:
    """Returns how much likelier the prediction is than the gold class."""
    if label_id is None:
        return 0.0
    return float(probabilities.max() - probabilities[label_id])
