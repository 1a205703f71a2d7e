"""What sits on the encoder, one class per objective.

Every head returns float32 logits, whatever the precision of its layers.
"""

import keras
from keras import ops

from albert_tf.config import ModelConfig
from albert_tf.modeling.dropout import ExampleDropout
from albert_tf.modeling.layers import ACTIVATIONS, dense, layer_norm


class MaskedLMHead(keras.layers.Layer):
    """Logits over the vocabulary at the masked positions.

    Dense H to E, activation, normalisation, then the product with the word
    embeddings (tied) plus a bias per piece.
    """

    def __init__(
        self, config: ModelConfig, name: str = "masked_lm", **kwargs: object
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.config = config
        self.activation = ACTIVATIONS[config.hidden_act]
        self.transform = dense(
            config, config.embedding_size, "transform", self.dtype_policy
        )
        self.layer_norm = layer_norm(config, self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        config = self.config
        self.transform.build((None, None, config.hidden_size))
        self.layer_norm.build((None, None, config.embedding_size))
        self.output_bias = self.add_weight(
            shape=(config.vocab_size,), initializer="zeros", name="output_bias"
        )
        self.built = True

    def call(
        self,
        sequence_output: keras.KerasTensor,
        masked_lm_positions: keras.KerasTensor,
        word_embeddings: keras.KerasTensor,
    ) -> keras.KerasTensor:
        """Returns logits `[batch, predictions, vocab]`.

        Args:
            sequence_output: `[batch, seq, H]`.
            masked_lm_positions: `[batch, predictions]` integers.
            word_embeddings: `[vocab, E]`.
        """
        hidden = ops.take_along_axis(
            sequence_output,
            ops.expand_dims(ops.cast(masked_lm_positions, "int32"), -1),
            axis=1,
        )
        hidden = self.layer_norm(self.activation(self.transform(hidden)))
        table = ops.cast(word_embeddings, hidden.dtype)
        logits = ops.matmul(hidden, ops.transpose(table))
        return ops.cast(logits, "float32") + ops.cast(
            self.output_bias, "float32"
        )


class SentenceOrderHead(keras.layers.Layer):
    """Two logits from the pooled vector: in order, swapped.

    Or what else the labels of the shards mean: with next-sentence records the
    segment follows or is of another document; single segments train nothing
    here.
    """

    def __init__(
        self,
        config: ModelConfig,
        name: str = "sentence_order",
        **kwargs: object,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.config = config
        self.classifier = dense(config, 2, "classifier", self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        self.classifier.build((None, self.config.hidden_size))
        self.built = True

    def call(self, pooled_output: keras.KerasTensor) -> keras.KerasTensor:
        """Returns logits `[batch, 2]` for pooled_output `[batch, H]`."""
        return ops.cast(self.classifier(pooled_output), "float32")


class ClassificationHead(keras.layers.Layer):
    """Dropout and a dense layer on the pooled vector."""

    def __init__(
        self,
        config: ModelConfig,
        num_labels: int,
        name: str = "classification",
        **kwargs: object,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.config = config
        self.num_labels = num_labels
        self.dropout = ExampleDropout(
            config.classifier_dropout_prob, dtype=self.dtype_policy
        )
        self.classifier = dense(
            config, num_labels, "classifier", self.dtype_policy
        )

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        self.classifier.build((None, self.config.hidden_size))
        self.built = True

    def call(
        self,
        pooled_output: keras.KerasTensor,
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> keras.KerasTensor:
        """Returns logits `[batch, labels]` for pooled_output `[batch, H]`."""
        hidden = self.dropout(
            pooled_output, keys=dropout_keys, training=training
        )
        return ops.cast(self.classifier(hidden), "float32")
