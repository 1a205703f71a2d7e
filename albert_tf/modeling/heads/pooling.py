"""Poolings: the states of a text as one vector, POOLINGS and EMBEDDINGS.

A head that reads TEXT_VECTOR gets the row of POOLINGS that the architecture's
`pooling` names, and TEXT_NGRAMS beside it where that row has n-grams.
Embeddings are rows of EMBEDDINGS, which have no weights.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import ModelConfig
from albert_tf.modeling.heads.ngrams import (
    COMPARISON_WIDTH,
    NGRAM_BUCKETS,
    compared_texts,
    ngram_vector,
)

# The inputs of such heads.
TEXT_VECTOR, TEXT_NGRAMS = "text_vector", "text_ngrams"
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


# Functions of the states `[batch, seq, H]` and the mask, without weights. The
# names are choices in the settings, too (config/training.py).
EMBEDDINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "first": state_of_first,
    "mean": mean_of_tokens,
    "mean_max": mean_and_maximum,
}


# The scalings of a vector; the names are options of heads.
LENGTHS: dict[str, Callable[[Tensor], Tensor]] = {
    "any": lambda vectors: vectors,
    "unit": lambda vectors: ops.normalize(vectors, axis=-1),
}


def _embedding(name: str) -> Callable[[Tensor, Mapping], Tensor]:
    """Returns a row of EMBEDDINGS as a function of the encoder's inputs."""
    pool = EMBEDDINGS[name]
    return lambda states, features: pool(states, features["input_mask"])


def _ngrams(features: Mapping) -> Tensor:
    return ngram_vector(features["input_ids"], features["input_mask"])


def _pair_means(states: Tensor, features: Mapping) -> Tensor:
    """Returns the means u and v of both texts, |u - v| and u * v.

    So sentence encoders compare texts (InferSent: Conneau et al. 2017). A
    single text has no second mean, v = 0.
    """
    first, second = (mean_of_tokens(states, text) for text in _texts(features))
    parts = [first, second, ops.abs(first - second), first * second]
    return ops.concatenate(parts, axis=-1)


def _pair_ngrams(features: Mapping) -> Tensor:
    return compared_texts(features["input_ids"], *_texts(features))


def _texts(features: Mapping) -> list[Tensor]:
    """Returns the masks `[batch, seq]` of the first and second text."""
    mask, segments = features["input_mask"], features["segment_ids"]
    return [ops.logical_and(mask, ops.equal(segments, n)) for n in (0, 1)]


class Pooling(NamedTuple):
    """A row of POOLINGS.

    Attributes:
        reads: the encoder's output that the vector is made of.
        pool: returns the vector `[batch, width]` of that output and the
            encoder's inputs `[batch, seq]`, by name.
        states: its width, in hidden sizes.
        ngrams: returns what a head reads of n-grams beside the vector,
            `[batch, ngrams_width]`, of the encoder's inputs.
        ngrams_width: its width; 0 without.
    """

    reads: str
    pool: Callable[[Tensor, Mapping[str, Tensor]], Tensor]
    states: int = 1
    ngrams: Callable[[Mapping[str, Tensor]], Tensor] | None = None
    ngrams_width: int = 0


# The names are choices in the settings, too (config/model.py). The states have
# no tanh and no dense layer behind them, unlike the pooled output.
_STATES = "sequence_output"
POOLINGS: dict[str, Pooling] = {
    _COMMON: Pooling(POOLED_OUTPUT, lambda pooled, features: pooled),
    "mean": Pooling(_STATES, _embedding("mean")),
    "mean_max": Pooling(_STATES, _embedding("mean_max"), 2),
    "mean_ngrams": Pooling(
        _STATES, _embedding("mean"), 1, _ngrams, NGRAM_BUCKETS
    ),
    "pair_mean": Pooling(_STATES, _pair_means, 4),
    "pair_mean_ngrams": Pooling(
        _STATES, _pair_means, 4, _pair_ngrams, COMPARISON_WIDTH
    ),
}


def encoder_output(reads: str, config: ModelConfig) -> str:
    """Returns the encoder's output that is read by, or in, a head's `reads`."""
    return POOLINGS[config.pooling].reads if reads == TEXT_VECTOR else reads


def read_width(reads: str, config: ModelConfig) -> int:
    """Returns the width of what a head reads."""
    if reads != TEXT_VECTOR:
        return config.hidden_size
    pooling = POOLINGS[config.pooling]
    return pooling.states * config.hidden_size + pooling.ngrams_width


def reads_ngrams(reads: str, config: ModelConfig) -> bool:
    """Returns whether a head reads n-grams, behind the vector."""
    return reads == TEXT_VECTOR and bool(POOLINGS[config.pooling].ngrams)


def is_own_pooling(reads: str, config: ModelConfig) -> bool:
    """Returns whether a head reads a vector that other libraries lack."""
    return reads == TEXT_VECTOR and config.pooling != _COMMON


def text_vectors(
    config: ModelConfig,
    outputs: Mapping[str, Tensor],
    features: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Returns TEXT_VECTOR by the architecture's pooling, and TEXT_NGRAMS.

    Args:
        config: the architecture.
        outputs: the encoder's.
        features: the encoder's inputs `[batch, seq]`.
    """
    pooling = POOLINGS[config.pooling]
    vectors = {TEXT_VECTOR: pooling.pool(outputs[pooling.reads], features)}
    if pooling.ngrams:
        vectors[TEXT_NGRAMS] = pooling.ngrams(features)
    return vectors
