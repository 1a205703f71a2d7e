"""Parameters and FLOPs of a model by formula: nothing is built.

These FLOPs count:

1. products of matrices, [m, k] by [k, n] as 2 m k n;
2. every position, padding as well;
3. the backward pass as two products of the same size for each of the forward
   pass (also of the tied output, for the word embeddings' gradient).

These FLOPs do not count:

1. biases, activations, softmax, normalisation, dropout, losses, the
   optimizer's update;
2. embeddings, which are look-ups, although segments are looked up by a
   product with one-hot rows;
3. what --remat computes again, so that rates with and without it compare.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert_tf.config import (
    SHARING,
    ModelConfig,
    PretrainConfig,
    override,
    preset,
)

# The heads of AlbertForPretraining.
PRETRAINING_HEADS = ("masked_lm", "sentence_order")


def forward_terms(
    config: ModelConfig,
    *,
    batch_size: int,
    seq_length: int,
    num_predictions: int = 0,
    read_positions_only: bool,
    num_applications: int | None = None,
) -> dict[str, int]:
    """Returns the operations of a forward pass in pretraining, part by part.

    `attention` are the products of queries and keys, and of weights and values.

    Args:
        config: the architecture.
        batch_size: sequences.
        seq_length: tokens of each.
        num_predictions: masked positions of each.
        read_positions_only: whether the last block computes only the states
            that heads read, [CLS] and the masked positions, of keys and values
            everywhere.
        num_applications: applications of blocks; default: the architecture's.
    """
    hidden, embedding = config.hidden_size, config.embedding_size
    every = config.num_hidden_layers * config.inner_group_num
    blocks = every if num_applications is None else num_applications
    tokens = batch_size * seq_length
    predicted = batch_size * num_predictions
    # States that blocks compute, summed over the blocks.
    states = blocks * tokens
    if read_positions_only:
        states += predicted + batch_size - tokens
    products = {
        "projection": tokens * embedding * hidden * config.projects_embeddings,
        "query": states * hidden**2,
        "key_value": 2 * blocks * tokens * hidden**2,
        # The sum over all heads; each has its part of the hidden states.
        "attention": 2 * states * hidden * seq_length,
        "attention_output": states * hidden**2,
        "feed_forward": 2 * states * hidden * config.intermediate_size,
        "pooler": batch_size * hidden**2,
        "masked_lm": predicted * embedding * (hidden + config.vocab_size),
        "sentence_order": batch_size * hidden * 2,
    }
    return {name: 2 * size for name, size in products.items()}


def encoder_flops(config: ModelConfig, **batch: Any) -> int:
    """Returns the operations of the encoder and its pooler, without heads."""
    terms = forward_terms(config, **batch)
    return sum(terms.values()) - sum(terms[head] for head in PRETRAINING_HEADS)


def training_flops(config: ModelConfig, **batch: Any) -> int:
    """Returns the operations of a training step: three forward passes."""
    return 3 * sum(forward_terms(config, **batch).values())


@dataclasses.dataclass(frozen=True)
class ParameterCount:
    """Weights by parts; normalisations count with the part they close."""

    embeddings: int
    projection: int
    attention: int
    feed_forward: int
    pooler: int
    heads: Mapping[str, int]

    @property
    def encoder(self) -> int:
        """The weights of the encoder, with its pooler."""
        blocks = self.attention + self.feed_forward
        return self.embeddings + self.projection + blocks + self.pooler

    @property
    def total(self) -> int:
        """The weights of the encoder and its heads."""
        return self.encoder + sum(self.heads.values())


def _dense(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def pretraining_head_weights(config: ModelConfig) -> dict[str, int]:
    """Returns the weights of the heads of pretraining, by name.

    These are the paper's. Other heads count their own, `Head.count_weights`.
    """
    hidden, embedding = config.hidden_size, config.embedding_size
    return {
        # The decoder is the table of word embeddings; only its bias is new.
        "masked_lm": _dense(hidden, embedding)
        + 2 * embedding
        + config.vocab_size,
        "sentence_order": _dense(hidden, 2),
    }


def parameter_count(
    config: ModelConfig, heads: Mapping[str, int] | None = None
) -> ParameterCount:
    """Returns the exact number of weights of a model, part by part.

    `heads` are the weights of its heads, by name.
    """
    embedding, hidden = config.embedding_size, config.hidden_size
    ids = (
        config.vocab_size
        + config.type_vocab_size
        + config.max_position_embeddings
    )
    attention = 4 * _dense(hidden, hidden) + 2 * hidden
    feed_forward = (
        _dense(hidden, config.intermediate_size)
        + _dense(config.intermediate_size, hidden)
        + 2 * hidden
    )
    layers = range(config.num_hidden_layers)
    attentions, feed_forwards = (
        config.inner_group_num * len({key(layer, config) for layer in layers})
        for key in SHARING[config.sharing]
    )
    return ParameterCount(
        embeddings=(ids + 2) * embedding,
        projection=_dense(embedding, hidden) * config.projects_embeddings,
        attention=attentions * attention,
        feed_forward=feed_forwards * feed_forward,
        pooler=_dense(hidden, hidden),
        heads=heads or {},
    )


def with_pretraining_heads(config: ModelConfig) -> ParameterCount:
    """Returns `parameter_count` of AlbertForPretraining."""
    return parameter_count(config, pretraining_head_weights(config))


@dataclasses.dataclass(frozen=True)
class PublishedCount:
    """A row of the paper: a preset with changes, and its size in millions."""

    name: str
    millions: int
    preset: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def model(self) -> ModelConfig:
        """The row's architecture."""
        changes = {**preset(self.preset), **self.changes}
        return override(PretrainConfig(), changes).model

    @property
    def count(self) -> ParameterCount:
        """Our exact count, with the heads of pretraining."""
        return with_pretraining_heads(self.model)

    @property
    def reading(self) -> str:
        """The rule that gives the published number; empty if none does.

        All numbers but two are the encoder's weights, rounded, with the pooler
        where layers share something. Not so ALBERT xlarge (60 million; 58.7
        make 59) and xxlarge (235 million; 222.6 make 223), nor when they are
        cut off or counted with the heads of pretraining.
        """
        count = self.count
        counted = {
            "encoder": count.encoder,
            "encoder without pooler": count.encoder - count.pooler,
        }
        # The paper gives three figures at most.
        unit = 10**6 * (10 if self.millions >= 1000 else 1)
        for name, weights in counted.items():
            if (weights + unit // 2) // unit == self.millions * 10**6 // unit:
                return f"{name}, rounded"
        return ""


def _base(embedding_size: int, **millions: int) -> tuple[PublishedCount, ...]:
    """Returns a row for each sharing mode with its published millions."""
    return tuple(
        PublishedCount(
            f"E={embedding_size} sharing={sharing}",
            count,
            "base",
            {"embedding_size": embedding_size, "sharing": sharing},
        )
        for sharing, count in millions.items()
    )


PAPER_TABLES: dict[str, tuple[PublishedCount, ...]] = {
    "Table 1, sizes": (
        PublishedCount("BERT base", 108, "bert_base"),
        PublishedCount("BERT large", 334, "bert_large"),
        PublishedCount("BERT xlarge", 1270, "bert_xlarge"),
        PublishedCount("ALBERT base", 12, "base"),
        PublishedCount("ALBERT large", 18, "large"),
        PublishedCount("ALBERT xlarge", 60, "xlarge"),
        PublishedCount("ALBERT xxlarge", 235, "xxlarge"),
    ),
    "Table 3, embedding size": (
        *_base(64, none=87),
        *_base(128, none=89),
        *_base(256, none=93),
        *_base(768, none=108),
        *_base(64, all=10),
        *_base(128, all=12),
        *_base(256, all=16),
        *_base(768, all=31),
    ),
    "Table 4, sharing": (
        *_base(768, all=31, attention=83, ffn=57, none=108),
        *_base(128, all=12, attention=64, ffn=38, none=89),
    ),
}
