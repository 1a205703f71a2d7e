"""Gradients of embeddings with a loss scale: SparseGradients."""

import keras

from albert_tf.modeling.kernels import to_dense


class SparseGradients(keras.optimizers.Optimizer):
    """An optimizer that takes sums of rows (IndexedSlices) as gradients."""

    def apply(
        self, grads: list, trainable_variables: list | None = None
    ) -> None:
        """Updates the variables by their gradients, as any Keras optimizer."""
        if self.loss_scale_factor is not None:
            # Keras divides them, which a sum of rows cannot be.
            grads = [None if g is None else to_dense(g) for g in grads]
        super().apply(grads, trainable_variables)
