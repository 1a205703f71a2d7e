"""Attention: from queries, keys, values and a mask to the context.

`attend` holds the weights of all pairs of positions, `attend_in_chunks` those
of a chunk of the queries at a time, the kernels of device_kernels.py none: the
rows of FORMS.
"""

import functools
from collections.abc import Callable

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import ModelConfig, require
from albert_tf.modeling.device_kernels import (
    KERNELS,
    kernel_attention,
    kernel_of_device,
    kernel_problem,
)
from albert_tf.modeling.recomputation import map_chunks

# Added to the logits of masked positions: exp of it is 0 in every precision,
# and float16 can hold it (the original's value).
MASKED_LOGIT = -10000.0
# More queries are attended to in chunks of at most this number.
LONGEST_CHUNK = 512


def training_form(name: str, config: ModelConfig, dtype: str) -> str:
    """Returns the form of attention in training, a row of FORMS.

    Args:
        name: a row of KERNELS; "plain"; "auto", the kernel that is chosen for
            the device where it can serve, else "plain".
        config: the architecture.
        dtype: in which the layers compute.

    Raises:
        UserError: when the kernel that is asked for cannot serve.
    """
    kernel = kernel_of_device() if name == "auto" else name
    if kernel not in KERNELS:
        return "plain"
    problem = kernel_problem(kernel, config, dtype)
    require(name == "auto" or not problem, f"attention={name!r} {problem}.")
    return "plain" if problem else kernel


def mask_to_logits(input_mask: Tensor, dtype: str) -> Tensor:
    """Returns `[batch, 1, 1, seq]`: 0 for tokens, MASKED_LOGIT for padding."""
    mask = ops.cast(input_mask, dtype)
    return (1.0 - ops.expand_dims(mask, (1, 2))) * MASKED_LOGIT


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask_logits: Tensor,
    positions: Tensor,
    dropout: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Returns the context `[batch, n, heads, size]` and the weights.

    The weights, `[batch, heads, n, seq]`, are those before dropout: row i has
    the weight of every position in the context of query i. (Scaled dot-product
    attention: "Attention Is All You Need", equation 1.)

    Args:
        query: `[batch, n, heads, size]`.
        key, value: `[batch, seq, heads, size]`.
        mask_logits: `[batch, 1, 1, seq]`, see `mask_to_logits`.
        positions: of the queries in the sequence, `[batch, n]` or `[1, n]`.
        dropout: of the weights of queries at positions, which are their rows.
    """
    scale = query.shape[-1] ** (-0.5)
    query = ops.transpose(query, (0, 2, 1, 3)) * scale
    logits = ops.matmul(query, ops.transpose(key, (0, 2, 3, 1)))
    weights = ops.softmax(logits + ops.cast(mask_logits, logits.dtype))
    value = ops.transpose(value, (0, 2, 1, 3))
    context = ops.matmul(dropout(weights, positions), value)
    return ops.transpose(context, (0, 2, 1, 3)), weights


def attend_in_chunks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask_logits: Tensor,
    positions: Tensor,
    dropout: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor | None]:
    """Returns the context as `attend`, in memory linear in the length.

    Each chunk of queries has its weights at once, so that no running sum is
    needed; the backward pass computes them again. At most LONGEST_CHUNK
    queries, and a number that is not known yet (None, or a symbol of JAX), are
    one chunk.
    """
    count = query.shape[1]
    if not isinstance(count, int) or count <= LONGEST_CHUNK:
        return attend(query, key, value, mask_logits, positions, dropout)
    num_chunks = -(-count // LONGEST_CHUNK)
    positions = _split(positions, num_chunks)

    def context_of(number: Tensor, chunk: Tensor, *shared: Tensor) -> Tensor:
        key, value = shared
        context, _ = attend(
            chunk, key, value, mask_logits, positions[number], dropout
        )
        return context

    chunks = map_chunks(context_of, _split(query, num_chunks), key, value)
    context = ops.reshape(
        ops.moveaxis(chunks, 0, 1), (ops.shape(query)[0], -1, *query.shape[2:])
    )
    return context[:, :count], None


def _without_weights(
    kernel: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask_logits: Tensor,
    positions: Tensor,
    dropout: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, None]:
    """Returns the context by a kernel, and None.

    A kernel has no dropout, so that `positions` and `dropout` are not read.
    """
    return kernel_attention(kernel, query, key, value, mask_logits), None


# Each has the arguments of `attend`. `with_weights` returns the attention
# weights; the others, which `--attention` selects, may return None in their
# place.
FORMS: dict[str, Callable] = {
    "with_weights": attend,
    "plain": attend_in_chunks,
    **{
        kernel: functools.partial(_without_weights, kernel)
        for kernel in KERNELS
    },
}


def _split(x: Tensor, num_chunks: int) -> Tensor:
    """Returns `[num_chunks, batch, n, ...]` of `[batch, count, ...]`."""
    count = x.shape[1]
    size = -(-count // num_chunks)
    padding = [(0, 0)] * len(x.shape)
    padding[1] = (0, num_chunks * size - count)
    x = ops.reshape(
        ops.pad(x, padding), (ops.shape(x)[0], num_chunks, size, *x.shape[2:])
    )
    return ops.moveaxis(x, 1, 0)
