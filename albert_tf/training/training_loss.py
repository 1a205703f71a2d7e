"""The loss that a job minimizes, and the metrics of the same labels."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.inputs import ENCODER_INPUTS
from albert_tf.modeling.losses import weighted_correct
from albert_tf.records.loss_terms import MASKED_LM, LossTerm
from albert_tf.records.sentence_objectives import SentenceObjective

# (weighted sum, weight) by the name of a loss or metric.
WeightedSums = dict[str, Any]


def as_float32(sums: WeightedSums) -> WeightedSums:
    """Returns the sums and weights in float32, whatever the precision."""
    return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), sums)


class TrainingLoss:
    """The weighted sum of some losses, each a mean over its own labels.

        L = sum_t w_t * sum_i(weight_i * loss_i) / sum_i weight_i

    over the terms t and the labels i of each in the global batch; w_t is the
    term's `loss_weight`, and loss_i is from its head. A batch is computed in
    pieces (replicas, micro-batches), so that L is taken in steps: the
    denominators (`label_weights`) of all pieces are added before any is
    computed, and make the `factors` w_t / sum_i weight_i; `losses` has the
    numerators of a piece, and `minimized` its share of L, whose gradients add
    up to that of L. `reported` is L with every w_t = 1, so that runs compare.

    Attributes:
        sequence_features: features whose last axis is the sequence.
    """

    def __init__(self, *terms: LossTerm) -> None:
        self.terms = terms
        self.sequence_features = set(ENCODER_INPUTS)
        for term in terms:
            self.sequence_features |= {*HEADS[term.head].sequence_features}

    def label_weights(self, features: dict) -> dict[str, tf.Tensor]:
        """Returns the sum of the label weights of each loss in a batch."""
        return {
            term.loss: tf.reduce_sum(_weights(term, features))
            for term in self.terms
        }

    def factors(
        self, label_weights: dict[str, tf.Tensor], scale: tf.Tensor | float
    ) -> dict[str, tf.Tensor]:
        """Returns the factor of each loss's sum, times the loss scale.

        Losses of weight 0 have none: what they alone reach has no gradient.
        """
        return {
            term.loss: tf.math.divide_no_nan(
                scale * term.loss_weight, label_weights[term.loss]
            )
            for term in self.terms
            if term.loss_weight
        }

    def losses(self, outputs: dict, features: dict) -> WeightedSums:
        """Returns (weighted sum, weight) of each loss, from its head."""
        return {
            term.loss: HEADS[term.head].loss(outputs, features)
            for term in self.terms
        }

    @staticmethod
    def minimized(
        losses: WeightedSums, factors: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Returns a piece's share of L, times the loss scale."""
        return tf.add_n(
            [losses[name][0] * factor for name, factor in factors.items()]
        )

    @staticmethod
    def reported(
        sums: WeightedSums, label_weights: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Returns the sum of the mean losses, from sums over all pieces."""
        return tf.add_n(
            [
                tf.math.divide_no_nan(sums[name][0], weight)
                for name, weight in label_weights.items()
            ]
        )

    def metrics(self, outputs: dict, features: dict) -> WeightedSums:
        """Returns (weight of correct labels, weight) by accuracy's name."""
        sums = {}
        for term in self.terms:
            if term.accuracy:
                (labelled,) = HEADS[term.head].labelled_outputs
                weights = _weights(term, features)
                correct = weighted_correct(
                    outputs[labelled.output], features[labelled.label], weights
                )
                sums[term.accuracy] = correct, tf.reduce_sum(weights)
        return sums

    def label_counts(
        self, outputs: dict, features: dict
    ) -> dict[str, tf.Tensor]:
        """Returns the weight of each class, `[classes]`, by baseline name.

        Where all labels weigh 1 that is the number of its labels.
        """
        return {
            term.baseline: tf.math.unsorted_segment_sum(
                tf.reshape(_weights(term, features), [-1]),
                tf.reshape(features[labelled.label], [-1]),
                outputs[labelled.output].shape[-1],
            )
            for term in self.terms
            if term.baseline
            for labelled in HEADS[term.head].labelled_outputs
        }


def _weights(term: LossTerm, features: dict) -> tf.Tensor:
    weights = features[HEADS[term.head].label_weights]
    return tf.cast(weights, tf.float32)


def pretraining_loss(
    sentence: SentenceObjective, sentence_loss_weight: float = 1.0
) -> TrainingLoss:
    """Returns the loss of masked LM and of a sentence objective."""
    weighted = (
        dataclasses.replace(term, loss_weight=sentence_loss_weight)
        for term in sentence.loss_terms
    )
    return TrainingLoss(MASKED_LM, *weighted)


def head_loss(head: str, loss_weight: float = 1.0) -> TrainingLoss:
    """Returns the training loss of a row of HEADS: `loss`, and `accuracy`.

    Heads without classes have no accuracy. The evaluation of a task computes
    the other metrics. `loss_weight` is the factor of what is minimized, not of
    what is reported.
    """
    row = HEADS[head]
    return TrainingLoss(
        LossTerm(
            title=head,
            loss="loss",
            accuracy="accuracy" if row.has_classes() else "",
            head=head,
            loss_weight=loss_weight,
        )
    )
