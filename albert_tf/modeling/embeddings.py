"""The embeddings: words, positions and segments.

E is embedding_size.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.inputs import infers_shapes
from albert_tf.modeling.layers import (
    Config,
    ConfiguredLayer,
    initializer,
    serializable,
)


def _sinusoids(stddev: float) -> Callable:
    """Returns the positions of "Attention Is All You Need" (section 3.5).

    Sines in the first half of a row, cosines in the second, scaled to a root
    mean square of `stddev`.
    """

    def table(shape: tuple[int, int], dtype: object = None) -> Tensor:
        rows, width = shape
        rates = 10_000.0 ** (-np.arange(-(-width // 2)) / (width / 2))
        angles = np.arange(rows)[:, None] * rates
        waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        return ops.cast(stddev * math.sqrt(2) * waves[:, :width], dtype)

    return table


@serializable
class Embeddings(ConfiguredLayer):
    """Word + position + segment embeddings, normalised: `[batch, seq, E]`."""

    def __init__(self, config: Config, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        config = self.config
        self.layer_norm = self.make_layer_norm(
            input_width=config.embedding_size
        )
        self.dropout = self.make_dropout(config.hidden_dropout_prob)

    def build(self, input_shape: object = None) -> None:
        """Creates the three tables and the normalisation."""
        config = self.config
        normal = positions = initializer(config)
        if config.position_init == "sinusoidal":
            positions = _sinusoids(config.initializer_range)
        for table, rows, initial in (
            ("word_embeddings", config.vocab_size, normal),
            ("token_type_embeddings", config.type_vocab_size, normal),
            ("position_embeddings", config.max_position_embeddings, positions),
        ):
            weight = self.add_weight(
                shape=(rows, config.embedding_size),
                initializer=initial,
                name=table,
            )
            setattr(self, table, weight)
        super().build(input_shape)

    def call(
        self,
        input_ids: Tensor,
        segment_ids: Tensor,
        dropout_keys: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        """Returns `[batch, seq, E]` for ids `[batch, seq]`."""
        words = ops.take(self.word_embeddings, input_ids, axis=0)
        if self.config.type_vocab_size == 1:
            segment_ids = ops.zeros_like(segment_ids)
        # A product with the one-hot rows: for two segments cheaper than a
        # gather, whose gradient would be a scatter.
        segments = ops.matmul(
            ops.one_hot(
                ops.reshape(segment_ids, (-1,)),
                self.config.type_vocab_size,
                dtype=words.dtype,
            ),
            ops.cast(self.token_type_embeddings, words.dtype),
        )
        segments = ops.reshape(segments, ops.shape(words))
        positions = self._first_positions(words)
        hidden = self.layer_norm(words + segments + positions)
        return self.dropout(hidden, keys=dropout_keys, training=training)

    def _first_positions(self, words: Tensor) -> Tensor:
        """Returns `[1, seq, E]` for words `[batch, seq, E]`."""
        positions = ops.cast(self.position_embeddings, words.dtype)
        length = ops.shape(words)[1]
        if infers_shapes():
            # A stand-in may be longer than the table.
            positions = ops.broadcast_to(positions[:1], ops.shape(words)[1:])
        else:
            positions = positions[:length]
        return ops.expand_dims(positions, 0)
