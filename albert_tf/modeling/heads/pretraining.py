"""The heads of pretraining: masked language modelling and sentence order."""

from typing import Any

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.heads.base import (
    DenseHead,
    Head,
    LabelledOutput,
    Tensors,
)
from albert_tf.modeling.layers import ACTIVATIONS, Config, serializable


@serializable
class MaskedLMHead(Head):
    """`masked_lm_logits` `[batch, predictions, vocab]` at masked positions.

    Dense H to E, activation, normalisation, then the product with the word
    embeddings (tied) plus a bias per piece. The loss is the mean negative
    log-likelihood over the weights (paper, section 3.1; the original adds 1e-5
    to the weight).
    """

    head_name = "masked_lm"
    model_name = "AlbertForMaskedLM"
    transformers_model = "AlbertForMaskedLM"
    is_pretrained = True
    weight_names = (
        (
            "transform",
            "cls/predictions/transform/dense",
            "predictions.dense",
        ),
        (
            "layer_norm",
            "cls/predictions/transform/LayerNorm",
            "predictions.LayerNorm",
        ),
        ("output_bias", "cls/predictions/output_bias", "predictions.bias"),
    )
    reads = "masked_lm_positions"
    features = ("masked_lm_positions",)
    outputs = ("masked_lm_logits",)
    labelled_outputs = (
        LabelledOutput(
            "masked_lm_logits",
            "masked_lm_ids",
            num_classes=lambda head, shape: head.config.vocab_size,
        ),
    )
    label_weights = "masked_lm_weights"
    pipeline_tag = "fill-mask"
    predict_mode = "fill-mask"
    example_text = "A [MASK] text."

    def __init__(self, config: Config, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        width = self.config.embedding_size
        self.activation = ACTIVATIONS[self.config.hidden_act]
        self.transform = self.make_dense("transform", width)
        self.layer_norm = self.make_layer_norm(input_width=width)

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        super().build(input_shape)
        self.output_bias = self.add_weight(
            shape=(self.config.vocab_size,),
            initializer="zeros",
            name="output_bias",
        )

    def call(
        self,
        encoded: Tensors,
        features: Tensors,
        dropout_keys: Tensor | None = None,
        training: bool = False,
    ) -> Tensors:
        """Returns `masked_lm_logits` at `masked_lm_positions`."""
        states = encoded[self.reads]
        flat = ops.reshape(states, (-1, self.config.hidden_size))
        hidden = self.layer_norm(self.activation(self.transform(flat)))
        table = ops.cast(encoded["word_embeddings"], hidden.dtype)
        logits = ops.matmul(hidden, ops.transpose(table))
        logits = ops.reshape(
            logits, (*ops.shape(states)[:2], self.config.vocab_size)
        )
        bias = ops.cast(self.output_bias, "float32")
        return {"masked_lm_logits": ops.cast(logits, "float32") + bias}

    def signatures(self, graph: Any) -> dict[str, Any]:
        """Returns the signature that fills the masks of a text."""
        return graph.masks(self)


@serializable
class SentenceOrderHead(DenseHead):
    """Two logits `[batch, 2]` from the pooled vector: in order, swapped.

    With next-sentence records the labels mean that the segment follows or is
    of another document; single segments train nothing here. Without dropout,
    as in the original.
    """

    head_name = "sentence_order"
    transformers_model = "AlbertForPreTraining"
    is_pretrained = True
    weight_names = (
        (
            "classifier",
            # output_weights [2, H] and output_bias.
            "cls/seq_relationship/output_*",
            "sop_classifier.classifier",
        ),
    )
    outputs = ("sentence_order_logits",)
    labelled_outputs = (
        LabelledOutput(
            "sentence_order_logits",
            "sentence_order_labels",
            num_classes=lambda head, shape: 2,
        ),
    )
    width = 2
    has_dropout = False

    def signatures(self, graph: Any) -> dict[str, Any]:
        """Returns the signature for a pair of texts, by the head's name."""
        return graph.sentences(self)
