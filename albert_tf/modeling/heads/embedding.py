"""Sentence embeddings: the states of a text as one vector."""

from typing import Any

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.heads.base import Head, Tensors
from albert_tf.modeling.heads.pooling import mean_of_tokens
from albert_tf.modeling.layers import serializable
from albert_tf.modeling.losses import Pair, weighted_contrast


@serializable
class SentenceEmbeddingHead(Head):
    """A vector for a text, without weights.

    `mean_embedding` is the mean of the states of the tokens, `cls_embedding`
    the state of the first one; float32 `[batch, H]`. Of pairs of texts that
    belong together (`input_ids` `[batch, 2, seq]`) both are `[batch, 2, H]`,
    and the means have a loss, which needs no label.
    """

    head_name = "sentence_embedding"
    model_name = "AlbertForSentenceEmbedding"
    reads = "sequence_output"
    outputs = ("mean_embedding", "cls_embedding")

    def call(
        self,
        encoded: Tensors,
        features: Tensors,
        dropout_keys: Tensor | None = None,
        training: bool = False,
    ) -> Tensors:
        """Returns `mean_embedding` and `cls_embedding` `[batch, H]`."""
        hidden = encoded["sequence_output"]
        mask = features["input_mask"]
        rows = ops.reshape(mask, (-1, ops.shape(mask)[-1]))
        vectors = {
            "mean_embedding": mean_of_tokens(hidden, rows),
            "cls_embedding": ops.cast(hidden[:, 0], "float32"),
        }
        if len(mask.shape) == 2:
            return vectors
        shape = (-1, ops.shape(mask)[1], hidden.shape[-1])
        return {n: ops.reshape(v, shape) for n, v in vectors.items()}

    @classmethod
    def loss(cls, outputs: dict, features: dict) -> Pair | None:
        """Returns the `weighted_contrast` of pairs; None for single texts."""
        vectors = outputs["mean_embedding"]
        if len(vectors.shape) == 2:
            return None
        return weighted_contrast(vectors, features.get(cls.label_weights))

    def signatures(self, graph: Any) -> dict[str, Any]:
        """Returns none: every exported model has `embed`."""
        return {}
