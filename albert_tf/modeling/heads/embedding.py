"""Sentence embeddings: the states of a text as one vector."""

from typing import Any

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.heads.base import Head, Tensors
from albert_tf.modeling.heads.pooling import mean_of_tokens
from albert_tf.modeling.layers import serializable


@serializable
class SentenceEmbeddingHead(Head):
    """A vector for a text, without weights and without a loss.

    `mean_embedding` is the mean of the states of the tokens, `cls_embedding`
    the state of the first one; float32 `[batch, H]`.
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
        return {
            "mean_embedding": mean_of_tokens(hidden, features["input_mask"]),
            "cls_embedding": ops.cast(hidden[:, 0], "float32"),
        }

    def signatures(self, graph: Any) -> dict[str, Any]:
        """Returns none: every exported model has `embed`."""
        return {}
