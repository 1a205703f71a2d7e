"""Gradients of embeddings under a Keras optimizer: SparseGradients."""

import keras

from albert_tf.modeling.kernels import to_dense


class SparseGradients(keras.optimizers.Optimizer):
    """An optimizer that takes sums of rows (IndexedSlices) as gradients.

    Keras divides, clips and squares them row by row, each occurrence of a word
    by itself, and not their sum.
    """

    def apply(
        self, grads: list, trainable_variables: list | None = None
    ) -> None:
        """Updates the variables by their gradients, as any Keras optimizer."""
        grads = [None if g is None else to_dense(g) for g in grads]
        super().apply(grads, trainable_variables)
