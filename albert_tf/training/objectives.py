"""The losses and metrics of a job.

`losses` and `metrics` return (weighted sum, weight) pairs by name, which the
trainer adds over replicas and batches and divides once.
"""

import tensorflow as tf

from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.inputs import ENCODER_INPUTS
from albert_tf.modeling.losses import weighted_correct
from albert_tf.records.sentence_objectives import SentenceObjective
from albert_tf.records.targets import MASKED_LM, Target

Pairs = dict[str, tuple[tf.Tensor, tf.Tensor]]


class TargetsObjective:
    """The loss of each target's head, a mean over its own labels.

    Attributes:
        targets: rows of records/targets.py.
        loss_names: of the losses that are added up.
        sequence_features: features whose last axis is the sequence.
    """

    sequence_features = ENCODER_INPUTS

    def __init__(self, *targets: Target) -> None:
        self.targets = targets
        self.loss_names = tuple(target.loss for target in targets)

    def weights(self, features: dict) -> dict[str, tf.Tensor]:
        """Returns the weight of each target's loss."""
        return {
            target.loss: _sum(features[target.weights])
            for target in self.targets
        }

    def losses(self, outputs: dict, features: dict) -> Pairs:
        """Returns the loss of each target; their means are added."""
        return {
            target.loss: HEADS[target.head].loss(outputs, features)
            for target in self.targets
        }

    def metrics(self, outputs: dict, features: dict) -> Pairs:
        """Returns the accuracy of each target."""
        return {
            target.accuracy: _accuracy(
                outputs[target.logits],
                features[target.labels],
                features[target.weights],
            )
            for target in self.targets
        }

    def label_weights(self, outputs: dict, features: dict) -> dict:
        """Returns the weight of each class, `[classes]`, by baseline name."""
        return {
            target.baseline: tf.math.unsorted_segment_sum(
                tf.reshape(features[target.weights], [-1]),
                tf.reshape(features[target.labels], [-1]),
                outputs[target.logits].shape[-1],
            )
            for target in self.targets
        }


def pretraining_objective(sentence: SentenceObjective) -> TargetsObjective:
    """Returns the objective of masked LM and the sentence objective."""
    return TargetsObjective(MASKED_LM, *sentence.targets)


class HeadObjective:
    """The loss of one head, and its accuracy where it has classes.

    Attributes:
        loss_names: of the losses that are added up.
        sequence_features: features whose last axis is the sequence.
    """

    loss_names = ("loss",)

    def __init__(self, head: str) -> None:
        """Takes the name of a row of HEADS."""
        self._head = HEADS[head]
        self._weights = self._head.label_weights
        self.sequence_features = (
            *ENCODER_INPUTS,
            *self._head.sequence_features,
        )

    def weights(self, features: dict) -> dict[str, tf.Tensor]:
        """Returns the weight of the loss."""
        return {"loss": _sum(features[self._weights])}

    def losses(self, outputs: dict, features: dict) -> Pairs:
        """Returns the loss of the head."""
        return {"loss": self._head.loss(outputs, features)}

    def metrics(self, outputs: dict, features: dict) -> Pairs:
        """Returns the accuracy of the head's classes, if it has any."""
        if "logits" not in self._head.outputs:
            return {}
        weights = tf.cast(features[self._weights], tf.float32)
        return {
            "accuracy": _accuracy(
                outputs["logits"], features["label_ids"], weights
            )
        }

    def label_weights(self, outputs: dict, features: dict) -> dict:
        """Returns {}: the evaluation of a task computes its baselines."""
        return {}


def _sum(weights: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(weights, tf.float32))


def _accuracy(
    logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    return weighted_correct(logits, labels, weights), tf.reduce_sum(weights)
