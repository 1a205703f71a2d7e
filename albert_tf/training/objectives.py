"""The losses and metrics of a job."""

import dataclasses
from typing import Any

import tensorflow as tf

from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.inputs import ENCODER_INPUTS
from albert_tf.modeling.losses import weighted_correct
from albert_tf.records.sentence_objectives import SentenceObjective
from albert_tf.records.targets import MASKED_LM, Target

Pairs = dict[str, Any]


class Objective:
    """The losses of some targets, each a mean over its own labels.

    The trainer minimizes their sum, each times its `loss_weight`. `losses` and
    `metrics` return (weighted sum, weight) pairs by name, which it adds over
    replicas and batches and divides once.

    Attributes:
        sequence_features: features whose last axis is the sequence.
    """

    def __init__(self, *targets: Target) -> None:
        self.targets = targets
        self.sequence_features = set(ENCODER_INPUTS)
        for target in targets:
            self.sequence_features |= {*HEADS[target.head].sequence_features}

    def weights(self, features: dict) -> dict[str, tf.Tensor]:
        """Returns the weight of each loss, which depends on the batch only."""
        return {
            target.loss: tf.reduce_sum(_weights(target, features))
            for target in self.targets
        }

    def losses(self, outputs: dict, features: dict) -> Pairs:
        """Returns the loss of each target's head."""
        return {
            target.loss: HEADS[target.head].loss(outputs, features)
            for target in self.targets
        }

    def metrics(self, outputs: dict, features: dict) -> Pairs:
        """Returns the accuracy of each target that has one."""
        pairs = {}
        for target in self.targets:
            if target.accuracy:
                (trained,) = HEADS[target.head].labelled_outputs
                weights = _weights(target, features)
                correct = weighted_correct(
                    outputs[trained.output], features[trained.label], weights
                )
                pairs[target.accuracy] = correct, tf.reduce_sum(weights)
        return pairs

    def label_weights(
        self, outputs: dict, features: dict
    ) -> dict[str, tf.Tensor]:
        """Returns the weight of each class, `[classes]`, by baseline name."""
        return {
            target.baseline: tf.math.unsorted_segment_sum(
                tf.reshape(_weights(target, features), [-1]),
                tf.reshape(features[trained.label], [-1]),
                outputs[trained.output].shape[-1],
            )
            for target in self.targets
            if target.baseline
            for trained in HEADS[target.head].labelled_outputs
        }


def _weights(target: Target, features: dict) -> tf.Tensor:
    weights = features[HEADS[target.head].label_weights]
    return tf.cast(weights, tf.float32)


def pretraining_objective(
    sentence: SentenceObjective, sentence_loss_weight: float = 1.0
) -> Objective:
    """Returns the objective of masked LM and the sentence objective."""
    weighted = (
        dataclasses.replace(target, loss_weight=sentence_loss_weight)
        for target in sentence.targets
    )
    return Objective(MASKED_LM, *weighted)


def head_objective(head: str) -> Objective:
    """Returns the `loss` of a row of HEADS, and `accuracy` if it has classes.

    The evaluation of a task computes the other metrics.
    """
    row = HEADS[head]
    return Objective(
        Target(
            title=head,
            loss="loss",
            accuracy="accuracy" if "logits" in row.outputs else "",
            head=head,
        )
    )
