"""Losses and gradients of a replica's batch."""

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from albert_tf.training.accumulation import Features, Results, accumulate
from albert_tf.training.trace_per_shape import TracePerShape
from albert_tf.training.training_loss import TrainingLoss, as_float32


class GradientComputation:
    """Forward and backward pass of a replica's batch.

    Pieces of the rows are computed one after the other. Nothing is reduced
    over replicas.
    """

    def __init__(
        self,
        model: keras.Model,
        training_loss: TrainingLoss,
        variables: Sequence[keras.Variable],
        *,
        xla: bool,
    ) -> None:
        """Prepares the gradients of `variables`.

        With `xla` the forward and backward pass of a piece are one program.
        """
        self._model = model
        self._training_loss = training_loss
        self._variables = list(variables)
        self._compiled_piece = TracePerShape(
            self._forward_and_backward, xla=xla
        )

    def _forward_and_backward(
        self,
        features: Features,
        keys: tf.Tensor,
        factors: Mapping[str, tf.Tensor],
        num_applications: int | None,
    ) -> Results:
        """Returns losses, metrics and gradients of a piece."""
        with tf.GradientTape() as tape:
            outputs = self._model(
                features,
                dropout_keys=keys,
                training=True,
                heads_only=True,
                num_applications=num_applications,
            )
            losses = self._training_loss.losses(outputs, features)
            loss = self._training_loss.minimized(losses, factors)
        gradients = tape.gradient(
            loss, {v.path: v.value for v in self._variables}
        )
        metrics = self._training_loss.metrics(outputs, features)
        return as_float32({**losses, **metrics}), {
            path: tf.convert_to_tensor(gradient)
            for path, gradient in gradients.items()
            if gradient is not None
        }

    def over_rows(
        self,
        features: Features,
        keys: tf.Tensor,
        factors: Mapping[str, tf.Tensor],
        *,
        micro_batch_size: int,
        num_applications: int | None,
        part_widths: Sequence[int],
    ) -> Results:
        """Returns losses, metrics and gradients over all rows.

        Args:
            features: `[rows, ...]`; micro_batch_size divides the rows.
            keys: `[rows]`, of dropout.
            factors: of `TrainingLoss`.
            micro_batch_size: rows that are computed at once, at most.
            num_applications: of the model's blocks; None: all.
            part_widths: of `accumulate`.
        """

        def compute(features: Features, keys: tf.Tensor) -> Results:
            return self._compiled_piece(
                features,
                keys,
                factors,
                shape=features["input_ids"].shape,
                num_applications=num_applications,
            )

        return accumulate(
            compute,
            features,
            keys,
            micro_batch_size=micro_batch_size,
            part_widths=part_widths,
            sequence_features=self._training_loss.sequence_features,
        )
