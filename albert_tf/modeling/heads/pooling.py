"""Poolings: the states of a text as one vector, POOLINGS and EMBEDDINGS.

A head that reads TEXT_VECTOR gets the row of POOLINGS that the architecture's
`pooling` names. Embeddings are rows of EMBEDDINGS, which have no weights.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import ModelConfig

# What such heads read.
TEXT_VECTOR = "text_vector"
POOLED_OUTPUT = "pooled_output"
# The pooling that other libraries have too.
_COMMON = "first"


def mean_of_tokens(sequence_output: Tensor, input_mask: Tensor) -> Tensor:
    """Returns the mean state of a text's tokens, float32 `[batch, H]`.

    Without tokens it is 0.
    """
    mask = ops.expand_dims(ops.cast(input_mask, "float32"), -1)
    total = ops.sum(ops.cast(sequence_output, "float32") * mask, axis=1)
    return total / ops.maximum(ops.sum(mask, axis=1), 1.0)


def maximum_of_tokens(sequence_output: Tensor, input_mask: Tensor) -> Tensor:
    """Returns the largest value of each unit over a text's tokens.

    It is float32 `[batch, H]`; without tokens it is 0.
    """
    is_token = ops.expand_dims(ops.cast(input_mask, "bool"), -1)
    states = ops.where(is_token, sequence_output, -float("inf"))
    found = ops.cast(ops.max(states, axis=1), "float32")
    return ops.where(ops.any(is_token, axis=1), found, 0.0)


def mean_and_maximum(sequence_output: Tensor, input_mask: Tensor) -> Tensor:
    """Returns both of a text's tokens, float32 `[batch, 2 * H]`."""
    pools = mean_of_tokens, maximum_of_tokens
    parts = [pool(sequence_output, input_mask) for pool in pools]
    return ops.concatenate(parts, axis=-1)


def state_of_first(sequence_output: Tensor, input_mask: Tensor) -> Tensor:
    """Returns the state of [CLS], float32 `[batch, H]`."""
    del input_mask
    return ops.cast(sequence_output[:, 0], "float32")


def _pair_means(states: Tensor, features: Mapping) -> Tensor:
    """Returns the means u and v of both texts, |u - v| and u * v.

    So sentence encoders compare texts (InferSent: Conneau et al. 2017). A
    single text has no second mean, v = 0.
    """
    mask, segments = features["input_mask"], features["segment_ids"]
    first, second = (
        mean_of_tokens(states, ops.logical_and(mask, ops.equal(segments, n)))
        for n in (0, 1)
    )
    parts = [first, second, ops.abs(first - second), first * second]
    return ops.concatenate(parts, axis=-1)


class Pooling(NamedTuple):
    """A row of POOLINGS.

    Attributes:
        reads: the encoder's output that the vector is made of.
        widths: its width, in hidden sizes.
        pool: returns the vector `[batch, widths * H]` of that output and the
            encoder's inputs `[batch, seq]`, by name.
    """

    reads: str
    widths: int
    pool: Callable[[Tensor, Mapping[str, Tensor]], Tensor]


# The names are choices in the settings, too (config/model.py). The states have
# no tanh and no dense layer behind them, unlike the pooled output.
POOLINGS: dict[str, Pooling] = {
    _COMMON: Pooling(POOLED_OUTPUT, 1, lambda pooled, features: pooled),
    "mean": Pooling(
        "sequence_output",
        1,
        lambda states, features: mean_of_tokens(states, features["input_mask"]),
    ),
    "mean_max": Pooling(
        "sequence_output",
        2,
        lambda states, features: mean_and_maximum(
            states, features["input_mask"]
        ),
    ),
    "pair_mean": Pooling("sequence_output", 4, _pair_means),
}


# Functions of the states `[batch, seq, H]` and the mask. The names are choices
# in the settings, too (config/training.py).
EMBEDDINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "first": state_of_first,
    "mean": mean_of_tokens,
    "mean_max": mean_and_maximum,
}


def encoder_output(reads: str, config: ModelConfig) -> str:
    """Returns the encoder's output that is read by, or in, a head's `reads`."""
    return POOLINGS[config.pooling].reads if reads == TEXT_VECTOR else reads


def read_width(reads: str, config: ModelConfig) -> int:
    """Returns the width of what a head reads."""
    widths = POOLINGS[config.pooling].widths if reads == TEXT_VECTOR else 1
    return widths * config.hidden_size


def is_own_pooling(reads: str, config: ModelConfig) -> bool:
    """Returns whether a head reads a vector that other libraries lack."""
    return reads == TEXT_VECTOR and config.pooling != _COMMON


def text_vector(
    config: ModelConfig,
    outputs: Mapping[str, Tensor],
    features: Mapping[str, Tensor],
) -> Tensor:
    """Returns the vector of each text by the architecture's pooling.

    Args:
        config: the architecture.
        outputs: the encoder's.
        features: the encoder's inputs `[batch, seq]`.
    """
    pooling = POOLINGS[config.pooling]
    return pooling.pool(outputs[pooling.reads], features)
