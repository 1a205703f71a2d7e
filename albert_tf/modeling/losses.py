"""Losses as (weighted sum, weight) pairs.

A trainer adds both over replicas and micro-batches and divides once, so that
the same examples give the same loss however they were spread.
"""

import keras
from keras import ops


def negative_log_likelihood(
    logits: keras.KerasTensor, labels: keras.KerasTensor
) -> keras.KerasTensor:
    """Returns -log p(label) [...] for logits [..., classes], in float32."""
    logits = ops.cast(logits, "float32")
    labels = ops.cast(labels, "int32")
    chosen = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)
    return ops.logsumexp(logits, axis=-1) - ops.squeeze(chosen, axis=-1)


def weighted_cross_entropy(
    logits: keras.KerasTensor,
    labels: keras.KerasTensor,
    weights: keras.KerasTensor,
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Returns (sum of weight * -log p(label), sum of weights), scalars.

    Args:
        logits: `[..., classes]`.
        labels: `[...]` integers.
        weights: `[...]` float32; 0 for padding.
    """
    loss = negative_log_likelihood(logits, labels)
    return ops.sum(loss * weights), ops.sum(weights)


def weighted_correct(
    logits: keras.KerasTensor,
    labels: keras.KerasTensor,
    weights: keras.KerasTensor,
) -> keras.KerasTensor:
    """Returns the weight of the positions whose best class is the label."""
    hits = ops.equal(
        ops.cast(ops.argmax(logits, axis=-1), "int32"),
        ops.cast(labels, "int32"),
    )
    return ops.sum(ops.cast(hits, "float32") * weights)
