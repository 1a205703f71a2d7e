"""What a job minimises and reports, one class per job.

`losses` and `metrics` give (weighted sum, weight) pairs by name, so that the
trainer can add them over replicas and batches and divide once.

"""

import tensorflow as tf

from albert_tf.modeling.losses import (
    weighted_correct,
    weighted_cross_entropy,
)

Pairs = dict[str, tuple[tf.Tensor, tf.Tensor]]


class PretrainingObjective:
    """Masked LM and sentence order, each a mean over its own labels."""

    def losses(self, outputs: dict, features: dict) -> Pairs:
        """Returns the loss of each task; their means are added."""
        return {
            "masked_lm_loss": weighted_cross_entropy(
                outputs["masked_lm_logits"],
                features["masked_lm_ids"],
                features["masked_lm_weights"],
            ),
            "sentence_order_loss": weighted_cross_entropy(
                outputs["sentence_order_logits"],
                features["sentence_order_labels"],
                features["example_weights"],
            ),
        }

    def metrics(self, outputs: dict, features: dict) -> Pairs:
        """Returns the accuracy of each task."""
        return {
            "masked_lm_accuracy": (
                weighted_correct(
                    outputs["masked_lm_logits"],
                    features["masked_lm_ids"],
                    features["masked_lm_weights"],
                ),
                tf.reduce_sum(features["masked_lm_weights"]),
            ),
            "sentence_order_accuracy": (
                weighted_correct(
                    outputs["sentence_order_logits"],
                    features["sentence_order_labels"],
                    features["example_weights"],
                ),
                tf.reduce_sum(features["example_weights"]),
            ),
        }


class ClassificationObjective:
    """Cross-entropy of the classes."""

    def losses(self, outputs: dict, features: dict) -> Pairs:
        """Returns the loss."""
        return {
            "loss": weighted_cross_entropy(
                outputs["logits"],
                features["label_ids"],
                features["example_weights"],
            )
        }

    def metrics(self, outputs: dict, features: dict) -> Pairs:
        """Returns the accuracy."""
        return {
            "accuracy": (
                weighted_correct(
                    outputs["logits"],
                    features["label_ids"],
                    features["example_weights"],
                ),
                tf.reduce_sum(features["example_weights"]),
            )
        }
