"""Local attention in place of the usual one, for `--import`.

A position attends to those at most WINDOW away and to the first one, which
attends to all: so the mask of padding has a band beside it. The arithmetic is
that of all pairs; a kernel that leaves out what is masked would save it.
"""

from collections.abc import Callable

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.attention import FORMS, MASKED_LOGIT, attend

WINDOW = 64


def attend_locally(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask_logits: Tensor,
    positions: Tensor,
    dropout: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Returns the context and the weights as `attend`, within the window."""
    rows = positions[:, None, :, None]
    columns = ops.arange(ops.shape(key)[1], dtype="int32")
    is_near = ops.abs(rows - columns) <= WINDOW
    is_first = ops.logical_or(rows == 0, columns == 0)
    # [batch or 1, 1, n, seq]
    far = ops.where(ops.logical_or(is_near, is_first), 0.0, MASKED_LOGIT)
    mask_logits = mask_logits + ops.cast(far, mask_logits.dtype)
    return attend(query, key, value, mask_logits, positions, dropout)


FORMS |= dict.fromkeys(("plain", "with_weights"), attend_locally)
