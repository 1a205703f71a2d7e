"""The parts of a block: embeddings, self-attention, feed-forward.

Shapes: `[batch, seq, hidden]` throughout; H is hidden_size, E embedding_size.
"""

from collections.abc import Callable, Mapping

import keras
from keras import ops

from albert_tf.config import ModelConfig, from_dict, to_dict
from albert_tf.modeling.dropout import ExampleDropout, fold_in

# The package name under which Keras files know these classes.
serializable = keras.saving.register_keras_serializable(package="albert_tf")

# Added to the logits of masked positions: exp of it is 0 in every precision,
# and float16 can hold it (the original's value).
MASKED_LOGIT = -10000.0

ACTIVATIONS: dict[str, Callable] = {
    "gelu": lambda x: keras.activations.gelu(x, approximate=True),
    "gelu_exact": lambda x: keras.activations.gelu(x, approximate=False),
    "relu": keras.activations.relu,
}


def initializer(config: ModelConfig) -> keras.initializers.Initializer:
    """Returns the truncated normal of the released configuration."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def dense(
    config: ModelConfig,
    width: int,
    name: str,
    dtype: object,
    use_bias: bool = True,
) -> keras.layers.Dense:
    """Returns a dense layer with ALBERT's initializer."""
    return keras.layers.Dense(
        width,
        use_bias=use_bias,
        kernel_initializer=initializer(config),
        name=name,
        dtype=dtype,
    )


def layer_norm(
    config: ModelConfig, dtype: object, name: str = "layer_norm"
) -> keras.layers.LayerNormalization:
    """Returns layer normalisation over the last axis."""
    return keras.layers.LayerNormalization(
        epsilon=config.layer_norm_eps, name=name, dtype=dtype
    )


def as_model_config(config: ModelConfig | Mapping) -> ModelConfig:
    """Returns the architecture, also from what `get_config` gave.

    Raises:
        UserError: naming the setting that is wrong.
    """
    if isinstance(config, ModelConfig):
        return config
    return from_dict(ModelConfig, config, "a layer's config")


class ConfiguredLayer(keras.layers.Layer):
    """A layer made from the architecture alone."""

    def __init__(
        self, config: ModelConfig | Mapping, name: str, **kwargs: object
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.config = as_model_config(config)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "config": to_dict(self.config)}


@serializable
class Embeddings(ConfiguredLayer):
    """Word + position + segment embeddings, normalised: `[batch, seq, E]`."""

    def __init__(
        self,
        config: ModelConfig | Mapping,
        name: str = "embeddings",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, **kwargs)
        config = self.config
        self.layer_norm = layer_norm(config, self.dtype_policy)
        self.dropout = ExampleDropout(
            config.hidden_dropout_prob, dtype=self.dtype_policy
        )

    def build(self, input_shape: object = None) -> None:
        """Creates the three tables."""
        config = self.config
        for table, rows in (
            ("word_embeddings", config.vocab_size),
            ("token_type_embeddings", config.type_vocab_size),
            ("position_embeddings", config.max_position_embeddings),
        ):
            weight = self.add_weight(
                shape=(rows, config.embedding_size),
                initializer=initializer(config),
                name=table,
            )
            setattr(self, table, weight)
        self.layer_norm.build((None, None, config.embedding_size))
        self.built = True

    def call(
        self,
        input_ids: keras.KerasTensor,
        segment_ids: keras.KerasTensor,
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> keras.KerasTensor:
        """Returns `[batch, seq, E]` for ids `[batch, seq]`."""
        length = ops.shape(input_ids)[1]
        words = ops.take(self.word_embeddings, input_ids, axis=0)
        # A product with the one-hot rows: for two segments cheaper than a
        # gather, whose gradient would be a scatter.
        segments = ops.matmul(
            ops.one_hot(
                segment_ids, self.config.type_vocab_size, dtype=words.dtype
            ),
            ops.cast(self.token_type_embeddings, words.dtype),
        )
        positions = ops.cast(self.position_embeddings, words.dtype)[:length]
        hidden = self.layer_norm(words + segments + positions[None])
        return self.dropout(hidden, keys=dropout_keys, training=training)


@serializable
class SelfAttention(ConfiguredLayer):
    """Multi-head self-attention with output, residual and normalisation."""

    def __init__(
        self,
        config: ModelConfig | Mapping,
        name: str = "attention",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, **kwargs)
        config = self.config
        width, policy = config.hidden_size, self.dtype_policy
        self.query = dense(config, width, "query", policy)
        self.key = dense(config, width, "key", policy)
        self.value = dense(config, width, "value", policy)
        self.output_dense = dense(config, width, "output", policy)
        self.layer_norm = layer_norm(config, policy)
        self.probs_dropout = ExampleDropout(
            config.attention_probs_dropout_prob, dtype=policy
        )
        self.output_dropout = ExampleDropout(
            config.hidden_dropout_prob, dtype=policy
        )

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        shape = (None, None, self.config.hidden_size)
        for part in (
            self.query,
            self.key,
            self.value,
            self.output_dense,
            self.layer_norm,
        ):
            part.build(shape)
        self.built = True

    def _split_heads(self, x: keras.KerasTensor) -> keras.KerasTensor:
        """Returns `[batch, heads, seq, hidden / heads]`."""
        shape, heads = ops.shape(x), self.config.num_attention_heads
        size = self.config.hidden_size // heads
        x = ops.reshape(x, (shape[0], shape[1], heads, size))
        return ops.transpose(x, (0, 2, 1, 3))

    def call(
        self,
        hidden: keras.KerasTensor,
        mask_logits: keras.KerasTensor,
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
        output_attentions: bool = False,
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, keras.KerasTensor]:
        """Returns `[batch, seq, H]`, on request with the attention weights.

        The weights, `[batch, heads, seq, seq]`, are those before dropout: row
        i says how much position i reads of every other.

        Args:
            hidden: `[batch, seq, H]`.
            mask_logits: `[batch, 1, 1, seq]`, added to the logits: 0 where a
                position may be read, MASKED_LOGIT where not.
            dropout_keys: `[batch]` or None (see ExampleDropout).
            training: whether dropout is on.
            output_attentions: whether to return a pair.
        """
        keys = [None, None]
        if dropout_keys is not None:
            keys = [fold_in(dropout_keys, site) for site in range(2)]
        query = self._split_heads(self.query(hidden))
        key = self._split_heads(self.key(hidden))
        value = self._split_heads(self.value(hidden))
        scale = (self.config.hidden_size / self.config.num_attention_heads) ** (
            -0.5
        )
        logits = ops.matmul(query * scale, ops.transpose(key, (0, 1, 3, 2)))
        logits = logits + ops.cast(mask_logits, logits.dtype)
        probs = ops.softmax(logits, axis=-1)
        kept = self.probs_dropout(probs, keys=keys[0], training=training)
        context = ops.transpose(ops.matmul(kept, value), (0, 2, 1, 3))
        output = self.output_dense(ops.reshape(context, ops.shape(hidden)))
        output = self.output_dropout(output, keys=keys[1], training=training)
        hidden = self.layer_norm(hidden + output)
        return (hidden, probs) if output_attentions else hidden


@serializable
class FeedForward(ConfiguredLayer):
    """Two dense layers with residual and normalisation."""

    def __init__(
        self,
        config: ModelConfig | Mapping,
        name: str = "feed_forward",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, **kwargs)
        config = self.config
        policy = self.dtype_policy
        self.activation = ACTIVATIONS[config.hidden_act]
        self.intermediate = dense(
            config, config.intermediate_size, "intermediate", policy
        )
        self.output_dense = dense(config, config.hidden_size, "output", policy)
        self.layer_norm = layer_norm(config, policy)
        self.dropout = ExampleDropout(config.hidden_dropout_prob, dtype=policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        hidden = (None, None, self.config.hidden_size)
        self.intermediate.build(hidden)
        self.output_dense.build((None, None, self.config.intermediate_size))
        self.layer_norm.build(hidden)
        self.built = True

    def call(
        self,
        hidden: keras.KerasTensor,
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> keras.KerasTensor:
        """Returns `[batch, seq, H]` for hidden `[batch, seq, H]`."""
        output = self.output_dense(self.activation(self.intermediate(hidden)))
        output = self.dropout(output, keys=dropout_keys, training=training)
        return self.layer_norm(hidden + output)


@serializable
class TransformerBlock(keras.layers.Layer):
    """Self-attention, then feed-forward; both may be shared with others."""

    def __init__(
        self,
        attention: SelfAttention,
        feed_forward: FeedForward,
        name: str = "transformer_block",
        **kwargs: object,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.attention = attention
        self.feed_forward = feed_forward

    def build(self, input_shape: object = None) -> None:
        """Creates the weights of parts that no other block has built."""
        for part in (self.attention, self.feed_forward):
            if not part.built:
                part.build(input_shape)
        self.built = True

    def call(
        self,
        hidden: keras.KerasTensor,
        mask_logits: keras.KerasTensor,
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
        output_attentions: bool = False,
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, keras.KerasTensor]:
        """Returns `[batch, seq, H]`, on request with the attention weights.

        Arguments as SelfAttention's.
        """
        keys = [None, None]
        if dropout_keys is not None:
            keys = [fold_in(dropout_keys, site) for site in range(2)]
        attended = self.attention(
            hidden,
            mask_logits,
            dropout_keys=keys[0],
            training=training,
            output_attentions=output_attentions,
        )
        hidden, probs = attended if output_attentions else (attended, None)
        hidden = self.feed_forward(
            hidden, dropout_keys=keys[1], training=training
        )
        return (hidden, probs) if output_attentions else hidden

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "attention": keras.saving.serialize_keras_object(self.attention),
            "feed_forward": keras.saving.serialize_keras_object(
                self.feed_forward
            ),
        }

    @classmethod
    def from_config(cls, config: dict) -> "TransformerBlock":
        """Returns the block that `get_config` described."""
        config = dict(config)
        for part in ("attention", "feed_forward"):
            config[part] = keras.saving.deserialize_keras_object(config[part])
        return cls(**config)
