"""Models: the encoder with the heads of a job."""

import keras

from albert_tf.config import ModelConfig, UserError
from albert_tf.modeling.dropout import fold_in
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.heads import (
    ClassificationHead,
    MaskedLMHead,
    SentenceOrderHead,
)

# The stream of dropout keys that heads use; the encoder's sites count from 0.
_HEAD_SITE = 1 << 20


class _AlbertModel(keras.Model):
    """An encoder and heads; weights exist as soon as it is made."""

    def __init__(self, config: ModelConfig, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.encoder = AlbertEncoder(config, dtype=self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates every weight."""
        for layer in self.layers:
            if not layer.built:
                layer.build(None)
        self.built = True

    def encode(
        self,
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns the encoder's outputs for a dictionary of features."""
        length = features["input_ids"].shape[1]
        limit = self.config.max_position_embeddings
        if length is not None and length > limit:
            raise UserError(
                f"A sequence of {length} tokens exceeds "
                f"max_position_embeddings={limit}; shorten the data or give "
                "the model more positions."
            )
        return self.encoder(
            features["input_ids"],
            features["input_mask"],
            features["segment_ids"],
            dropout_keys=dropout_keys,
            training=training,
        )


class AlbertForPretraining(_AlbertModel):
    """Masked language modelling and sentence order on one encoder."""

    def __init__(
        self, config: ModelConfig, name: str = "albert", **kwargs: object
    ) -> None:
        super().__init__(config, name=name, **kwargs)
        self.masked_lm = MaskedLMHead(config, dtype=self.dtype_policy)
        self.sentence_order = SentenceOrderHead(config, dtype=self.dtype_policy)
        self.build()

    def call(
        self,
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns the encoder's outputs and both heads' logits.

        Args:
            features: `input_ids`, `input_mask`, `segment_ids` `[batch, seq]`
                and `masked_lm_positions` `[batch, predictions]`.
            dropout_keys: `[batch]` uint32 or None (see ExampleDropout).
            training: whether dropout is on.

        Returns:
            `masked_lm_logits` `[batch, predictions, vocab]`,
            `sentence_order_logits` `[batch, 2]`, `sequence_output`,
            `pooled_output`.
        """
        outputs = self.encode(features, dropout_keys, training)
        outputs["masked_lm_logits"] = self.masked_lm(
            outputs["sequence_output"],
            features["masked_lm_positions"],
            self.encoder.embeddings.word_embeddings,
        )
        outputs["sentence_order_logits"] = self.sentence_order(
            outputs["pooled_output"]
        )
        return outputs


class AlbertForClassification(_AlbertModel):
    """One label for a text."""

    def __init__(
        self,
        config: ModelConfig,
        num_labels: int,
        name: str = "albert",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name=name, **kwargs)
        self.num_labels = num_labels
        self.classification = ClassificationHead(
            config, num_labels, dtype=self.dtype_policy
        )
        self.build()

    def call(
        self,
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns the encoder's outputs and `logits` `[batch, labels]`."""
        outputs = self.encode(features, dropout_keys, training)
        head_keys = None
        if dropout_keys is not None:
            head_keys = fold_in(dropout_keys, _HEAD_SITE)
        outputs["logits"] = self.classification(
            outputs["pooled_output"],
            dropout_keys=head_keys,
            training=training,
        )
        return outputs
