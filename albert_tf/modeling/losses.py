"""Losses as (weighted sum, weight) pairs.

A trainer adds both over replicas and micro-batches and divides once. Labels and
float32 weights are `[...]`; without weights all count 1.
"""

import math

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import require
from albert_tf.modeling.kernels import argmax, with_gradient

# (weighted sum, weight), scalars.
WeightedSum = tuple[Tensor, Tensor]
# The temperature of SimCSE (Gao et al. 2021).
INFO_NCE_TEMPERATURE = 0.05
# The logit of excluded candidates; finite, so that its gradient is 0 and not
# NaN.
_EXCLUDED_LOGIT = -1e9


def negative_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns float32 -log p(label) [...], NaN where there is no such class."""
    labels = _without_last_axis(ops.cast(labels, "int32"), logits[..., 0])
    # (tiny, 64 x 64 tokens, bfloat16: step +29 % with TensorFlow's own; base,
    # 2 x 512: +1 %.)
    return with_gradient(_cross_entropy, _cross_entropy_gradient)(
        logits, labels
    )


def _cross_entropy(
    logits: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns -log p(label), the largest logit and log sum exp beyond it.

    They are returned separately because float32 addition would round the small
    term away.
    """
    logits = ops.cast(logits, "float32")
    peak = ops.max(logits, axis=-1)
    peak = ops.where(ops.isfinite(peak), peak, 0.0)
    log_sum = ops.log(ops.sum(ops.exp(logits - peak[..., None]), axis=-1))
    chosen = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)
    losses = log_sum + (peak - ops.squeeze(chosen, axis=-1))
    # XLA clamps an index out of range.
    known = _is_class(labels, ops.shape(logits)[-1])
    return ops.where(known, losses, math.nan), peak, log_sum


def _is_class(labels: Tensor, classes: int) -> Tensor:
    return ops.logical_and(labels >= 0, labels < classes)


def _cross_entropy_gradient(
    gradient: Tensor,
    logits: Tensor,
    labels: Tensor,
    peak: Tensor,
    log_sum: Tensor,
) -> tuple[Tensor]:
    """Returns (softmax - one-hot label) * gradient, in a single pass."""
    classes = ops.shape(logits)[-1]
    gradient = ops.where(_is_class(labels, classes), gradient, 0.0)
    logits_above = ops.cast(logits, "float32") - peak[..., None]
    probs = ops.exp(logits_above - log_sum[..., None])
    chosen = ops.cast(ops.arange(classes) == labels[..., None], "float32")
    return (ops.cast((probs - chosen) * gradient[..., None], logits.dtype),)


def _comparable(
    labels: Tensor, weights: Tensor | None, like: Tensor, dtype: str
) -> Tensor:
    """Returns labels in the shape of `like`, 0 for those that weigh nothing.

    These may be anything (-100, NaN), and NaN times 0 would be NaN.
    """
    labels = _without_last_axis(ops.cast(labels, dtype), like)
    one_hot = (
        " Of one-hot labels take labels.argmax(-1), or give compile() a loss "
        "for them: keras.losses.CategoricalCrossentropy(from_logits=True)."
    )
    require(
        _fits(labels.shape, like.shape),
        f"The labels must have the shape {list(like.shape)}; they have "
        f"{list(labels.shape)}.{one_hot if dtype == 'int32' else ''}",
    )
    if weights is None:
        return labels
    return ops.where(broadcast_weights(weights, labels) > 0, labels, 0)


def _weighted(losses: Tensor, weights: Tensor | None) -> WeightedSum:
    if weights is None:
        return ops.sum(losses), ops.sum(ops.ones_like(losses))
    weights = broadcast_weights(weights, losses)
    return ops.sum(losses * weights), ops.sum(weights)


def broadcast_weights(weights: Tensor, like: Tensor) -> Tensor:
    """Returns float32 weights in the shape of `like`.

    Raises:
        UserError: where they are neither one for each example nor for each
            label.
    """
    given = ops.cast(weights, "float32")
    weights = _without_last_axis(given, like)
    while len(weights.shape) < len(like.shape):
        weights = ops.expand_dims(weights, -1)
    require(
        _fits(weights.shape, like.shape, 1),
        f"Weights of shape {list(given.shape)} do not fit labels of shape "
        f"{list(like.shape)}: give one for each example, or for each label.",
    )
    return ops.broadcast_to(weights, ops.shape(like))


def _fits(shape: tuple, like: tuple, *others: int) -> bool:
    """Returns whether the sizes that are known are alike or one of others."""
    return len(shape) == len(like) and all(
        size is None or other is None or size in (other, *others)
        for size, other in zip(shape, like, strict=True)
    )


def _without_last_axis(values: Tensor, like: Tensor) -> Tensor:
    """Returns values, squeezed if they have one axis more than `like`."""
    if len(values.shape) == len(like.shape) + 1 and values.shape[-1] == 1:
        return ops.squeeze(values, axis=-1)
    return values


def weighted_cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor | None
) -> WeightedSum:
    """Returns (sum of weight * -log p(label), sum of weights), scalars.

    `logits` are `[..., classes]`.
    """
    labels = _comparable(labels, weights, logits[..., 0], "int32")
    return _weighted(negative_log_likelihood(logits, labels), weights)


def weighted_info_nce(vectors: Tensor, weights: Tensor | None) -> WeightedSum:
    """Returns (weighted sum, weight) of InfoNCE on vectors `[batch, 2, H]`.

    For the first vector of a row the second one is the right answer, among
    the second ones of all rows: softmax of the cosines / INFO_NCE_TEMPERATURE.
    A row of weight 0 is padding, and no answer for others either.
    """
    vectors = ops.cast(vectors, "float32")
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    vectors = vectors * ops.rsqrt(ops.maximum(squares, 1e-12))
    cosines = ops.matmul(vectors[:, 0], ops.transpose(vectors[:, 1]))
    logits = cosines / INFO_NCE_TEMPERATURE
    if weights is not None:
        logits = ops.where(weights > 0, logits, _EXCLUDED_LOGIT)
    labels = ops.arange(ops.shape(logits)[0], dtype="int32")
    return weighted_cross_entropy(logits, labels, weights)


def weighted_squared_error(
    predictions: Tensor, labels: Tensor, weights: Tensor | None
) -> WeightedSum:
    """Returns (sum of weight * squared error, sum of weights), scalars."""
    labels = _comparable(labels, weights, predictions, "float32")
    error = ops.cast(predictions, "float32") - labels
    return _weighted(ops.square(error), weights)


def weighted_binary_cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor | None
) -> WeightedSum:
    """Returns (sum of weight * -log p(label), sum of weights), scalars.

    `logits` `[...]` are those of label 1; labels are 0 or 1.
    """
    logits = ops.cast(logits, "float32")
    labels = _comparable(labels, weights, logits, "float32")
    # The form softplus(x) - x * label does not overflow.
    return _weighted(ops.softplus(logits) - logits * labels, weights)


def weighted_correct(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Returns the weight of the positions whose best class is the label."""
    hits = ops.equal(argmax(logits), ops.cast(labels, "int32"))
    return ops.sum(ops.cast(hits, "float32") * weights)
