"""What a job minimises and reports.

`losses` and `metrics` give (weighted sum, weight) pairs by name, so that the
trainer can add them over replicas and batches and divide once.
"""

import tensorflow as tf

from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.losses import weighted_correct
from albert_tf.records.sentence_objectives import SentenceObjective
from albert_tf.records.targets import MASKED_LM, Target

Pairs = dict[str, tuple[tf.Tensor, tf.Tensor]]


class TargetsObjective:
    """The loss of each target's head, a mean over its own labels.

    Attributes:
        targets: rows of records/targets.py.
        loss_names: of the losses that are added up.
    """

    def __init__(self, *targets: Target) -> None:
        self.targets = targets
        self.loss_names = tuple(target.loss for target in targets)

    def weights(self, features: dict) -> dict[str, tf.Tensor]:
        """Returns the weight of each target's loss, known before it is."""
        return {
            target.loss: tf.reduce_sum(
                tf.cast(features[target.weights], tf.float32)
            )
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
            target.accuracy: (
                weighted_correct(
                    outputs[target.logits],
                    features[target.labels],
                    features[target.weights],
                ),
                tf.reduce_sum(features[target.weights]),
            )
            for target in self.targets
        }

    def label_weights(self, outputs: dict, features: dict) -> dict:
        """Returns the weight of each class, `[classes]`, by `baseline`.

        The majority-class baseline is computed from them.
        """
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
    """What one head minimises: `loss`, and `accuracy` where it has classes.

    Attributes:
        loss_names: of the losses that are added up.
    """

    loss_names = ("loss",)

    def __init__(self, head: str) -> None:
        """Takes a row of HEADS."""
        self._head = HEADS[head]
        self._weights = self._head.label_weights

    def weights(self, features: dict) -> dict[str, tf.Tensor]:
        """Returns the weight of the loss, known before it is."""
        return {
            "loss": tf.reduce_sum(tf.cast(features[self._weights], tf.float32))
        }

    def losses(self, outputs: dict, features: dict) -> Pairs:
        """Returns the loss of the head."""
        return {"loss": self._head.loss(outputs, features)}

    def metrics(self, outputs: dict, features: dict) -> Pairs:
        """Returns the accuracy of the head's classes, if it has any."""
        if "logits" not in self._head.outputs:
            return {}
        weights = tf.cast(features[self._weights], tf.float32)
        correct = weighted_correct(
            outputs["logits"], features["label_ids"], weights
        )
        return {"accuracy": (correct, tf.reduce_sum(weights))}

    def label_weights(self, outputs: dict, features: dict) -> dict:
        """Returns nothing: a task's own evaluation says what guessing is."""
        return {}
