"""Sentence embeddings: the states of a text as one vector."""

from collections.abc import Mapping
from typing import Any

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.heads.base import Head, Tensors
from albert_tf.modeling.heads.pooling import EMBEDDINGS, LENGTHS
from albert_tf.modeling.layers import Config, serializable
from albert_tf.modeling.losses import WeightedSum, weighted_info_nce


@serializable
class SentenceEmbeddingHead(Head):
    """A vector for a text, without weights.

    `embedding` is that of the head's `pooling`, a row of EMBEDDINGS;
    `mean_embedding` is the mean of the states of the tokens, `cls_embedding`
    the state of the first one. `length` is a row of LENGTHS, for all of them.
    They are float32 `[batch, H]`, with `mean_max` 2 * H. Of pairs of texts
    that belong together (`input_ids` `[batch, 2, seq]`) all are `[batch, 2,
    H]`, and `embedding` has a loss, which needs no label.
    """

    head_name = "sentence_embedding"
    model_name = "AlbertForSentenceEmbedding"
    reads = "sequence_output"
    outputs = ("embedding", "mean_embedding", "cls_embedding")
    options = ("pooling", "length")
    option_choices: Mapping[str, tuple[str, ...]] = {
        "pooling": tuple(EMBEDDINGS),
        "length": tuple(LENGTHS),
    }
    pipeline_tag = "sentence-similarity"

    def __init__(
        self,
        config: Config,
        pooling: str = "mean",
        length: str = "any",
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.pooling = pooling
        self.length = length

    def call(
        self,
        encoded: Tensors,
        features: Tensors,
        dropout_keys: Tensor | None = None,
        training: bool = False,
    ) -> Tensors:
        """Returns the three vectors of each text."""
        hidden = encoded["sequence_output"]
        mask = features["input_mask"]
        rows = ops.reshape(mask, (-1, ops.shape(mask)[-1]))
        poolings = {
            "embedding": self.pooling,
            "mean_embedding": "mean",
            "cls_embedding": "first",
        }
        scaled = LENGTHS[self.length]
        vectors = {
            name: scaled(EMBEDDINGS[pooling](hidden, rows))
            for name, pooling in poolings.items()
        }
        if len(mask.shape) == 2:
            return vectors
        number = ops.shape(mask)[1]
        return {
            name: ops.reshape(value, (-1, number, value.shape[-1]))
            for name, value in vectors.items()
        }

    @classmethod
    def loss(cls, outputs: dict, features: dict) -> WeightedSum | None:
        """Returns the `weighted_info_nce` of pairs; None for single texts."""
        vectors = outputs["embedding"]
        if len(vectors.shape) == 2:
            return None
        return weighted_info_nce(vectors, features.get(cls.label_weights))

    def signatures(self, graph: Any) -> dict[str, Any]:
        """Returns no signature of its own: every export already has `embed`."""
        return {}
