"""Attention: from queries, keys, values and a mask to the context."""

from collections.abc import Callable

from keras import KerasTensor as Tensor
from keras import ops

# Added to the logits of masked positions: exp of it is 0 in every precision,
# and float16 can hold it (the original's value).
MASKED_LOGIT = -10000.0


def mask_to_logits(input_mask: Tensor, dtype: str) -> Tensor:
    """Returns `[batch, 1, 1, seq]`: 0 for tokens, MASKED_LOGIT for padding."""
    mask = ops.cast(input_mask, dtype)
    return (1.0 - ops.expand_dims(mask, (1, 2))) * MASKED_LOGIT


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask_logits: Tensor,
    dropout: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Returns the context `[batch, n, heads, size]` and the weights.

    The weights, `[batch, heads, n, seq]`, are those before dropout: row i has
    the weight of every position in the context of query i. (Scaled dot-product
    attention: "Attention Is All You Need", equation 1.)

    Args:
        query: `[batch, n, heads, size]`.
        key, value: `[batch, seq, heads, size]`.
        mask_logits: `[batch, 1, 1, seq]`, see `mask_to_logits`.
        dropout: of the weights.
    """
    scale = query.shape[-1] ** (-0.5)
    query = ops.transpose(query, (0, 2, 1, 3)) * scale
    logits = ops.matmul(query, ops.transpose(key, (0, 2, 3, 1)))
    weights = ops.softmax(logits + ops.cast(mask_logits, logits.dtype))
    value = ops.transpose(value, (0, 2, 1, 3))
    context = ops.matmul(dropout(weights), value)
    return ops.transpose(context, (0, 2, 1, 3)), weights
