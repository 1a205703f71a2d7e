"""The transformer block: self-attention, then feed-forward."""

from collections.abc import Callable
from typing import Any

import keras
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.dropout import (
    ExampleDropout,
    apply_dropout,
    stream_keys,
)
from albert_tf.modeling.kernels import (
    fused,
    product,
    recomputed_product,
    states_at,
)
from albert_tf.modeling.layers import (
    ACTIVATIONS,
    CompositeLayer,
    Config,
    ConfiguredLayer,
    serializable,
)


def _is_quantized(layer: keras.layers.Dense) -> bool:
    """Returns whether only Keras can multiply by the kernel."""
    return layer.quantization_mode is not None


def _wide(x: Tensor) -> Tensor:
    """Returns float32, and float64 as it is."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


def _biased_activation(activation: Callable, x: Tensor, bias: Tensor) -> Tensor:
    """Returns `activation(x + bias)`, computed in at least float32."""
    return ops.cast(activation(_wide(x) + _wide(bias)), x.dtype)


def _normalized_sum(
    epsilon: float,
    rate: float,
    output: Tensor,
    bias: Tensor,
    hidden: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *dropout_inputs: Tensor,
) -> Tensor:
    """Returns the normalised `dropout(output + bias) + hidden` `[batch, n, H]`.

    Computed in at least float32. `dropout_inputs` is empty where the rate is 0.
    """
    total = _wide(output) + _wide(bias)
    if rate:
        total = apply_dropout(rate, total, *dropout_inputs)
    total = total + _wide(hidden)
    normed = ops.layer_normalization(total, gamma, beta, epsilon=epsilon)
    return ops.cast(normed, output.dtype)


class _BlockPart(ConfiguredLayer):
    """Half of a block: `normalize(dropout(x @ matrix + bias) + hidden)`.

    `call` computes x of hidden and ends with the product, so that `remat` can
    compute it again by itself; `add_and_normalize` does the rest. The bias is
    added

    - in inference, and to quantized matrices, by `call`: a Dense layer;
    - in training by `add_and_normalize`, in one pass over memory with dropout,
      sum and normalisation (`_normalized_sum`).
    """

    output_dense: keras.layers.Dense
    layer_norm: keras.layers.LayerNormalization
    output_dropout: ExampleDropout

    def _adds_bias_later(self, training: bool) -> bool:
        """Returns whether `add_and_normalize` adds the bias, not `call`."""
        return training and not _is_quantized(self.output_dense)

    def _output_product(self, x: Tensor, training: bool) -> Tensor:
        """Returns `call`'s `[..., H]` of x `[..., width]`."""
        if self._adds_bias_later(training):
            return ops.matmul(x, self.output_dense.kernel)
        return self.output_dense(x)

    def add_and_normalize(
        self,
        output: Tensor,
        hidden: Tensor,
        dropout_keys: Tensor | None,
        positions: Tensor,
        training: bool,
    ) -> Tensor:
        """Returns `[batch, n, H]`: dropout, residual connection, normalisation.

        Args:
            output: of `call`, `[batch * n, H]`.
            hidden: its input `[batch, n, H]`.
            dropout_keys: `[batch]` or None, see ExampleDropout.
            positions: of the states, `[batch, n]` or `[1, n]`.
            training: whether dropout is on.
        """
        norm, dropout = self.layer_norm, self.output_dropout
        output = ops.reshape(output, ops.shape(hidden))
        if not self._adds_bias_later(training):
            output = dropout(
                output, keys=dropout_keys, training=training, rows=positions
            )
            return norm(hidden + output)
        dropout_inputs = ()
        if dropout.rate:
            batch = ops.shape(hidden)[0]
            dropout_inputs = dropout.mask_inputs(batch, dropout_keys, positions)
        return fused(_normalized_sum, norm.epsilon, dropout.rate)(
            output,
            self.output_dense.bias,
            hidden,
            norm.gamma,
            norm.beta,
            *dropout_inputs,
        )


@serializable
class SelfAttention(_BlockPart):
    """Multi-head self-attention with residual and normalisation."""

    def __init__(self, config: Config, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        config = self.config
        width = config.hidden_size
        self.query = self.make_dense("query", width)
        self.key = self.make_dense("key", width)
        self.value = self.make_dense("value", width)
        self.output_dense = self.make_dense(
            "output", width, scale=config.output_init_scale
        )
        self.layer_norm = self.make_layer_norm()
        self.probs_dropout = self.make_dropout(
            config.attention_probs_dropout_prob
        )
        self.output_dropout = self.make_dropout(config.hidden_dropout_prob)

    def call(
        self,
        hidden: Tensor,
        queries: Tensor | None = None,
        *,
        positions: Tensor,
        attend: Callable,
        dropout_keys: Tensor | None = None,
        training: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the output `[batch * n, H]` and the weights.

        Args:
            hidden: `[batch, seq, H]`, the states that are attended to.
            queries: `[batch, n, H]`, the states whose context is computed;
                None: all.
            positions: of the queries, `[batch, n]` or `[1, n]`.
            attend: a row of FORMS with the mask of hidden.
            dropout_keys: `[batch]` or None, see ExampleDropout.
            training: whether dropout is on.
        """
        width = self.config.hidden_size
        flat = ops.reshape(hidden, (-1, width))
        flat_queries = flat
        if queries is not None:
            flat_queries = ops.reshape(queries, (-1, width))
        length, count = ops.shape(hidden)[1], ops.shape(positions)[1]

        def dropout(weights: Tensor, positions: Tensor) -> Tensor:
            rows = self._weight_rows(positions)
            return self.probs_dropout(
                weights, keys=dropout_keys, training=training, rows=rows
            )

        context, weights = attend(
            self._split_heads(self.query(flat_queries), count),
            self._split_heads(self.key(flat), length),
            self._split_heads(self.value(flat), length),
            positions=positions,
            dropout=dropout,
        )
        context = ops.reshape(context, (-1, width))
        return self._output_product(context, training), weights

    def _split_heads(self, x: Tensor, length: int) -> Tensor:
        """Returns `[batch, length, heads, H / heads]` of `[..., H]`."""
        heads = self.config.num_attention_heads
        size = self.config.hidden_size // heads
        return ops.reshape(x, (-1, length, heads, size))

    def _weight_rows(self, positions: Tensor) -> Tensor:
        """Returns the numbers `[..., heads, n]` of the weights' rows.

        They do not depend on the width of a batch, which may be cut.
        """
        heads = ops.arange(self.config.num_attention_heads, dtype="int32")
        rows = heads[:, None] * self.config.max_position_embeddings
        return rows + positions[:, None]


@serializable
class FeedForward(_BlockPart):
    """Two dense layers with residual and normalisation."""

    def __init__(self, config: Config, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        config = self.config
        self.activation = ACTIVATIONS[config.hidden_act]
        # The layer's own activation, and not one after it: TensorFlow's
        # graph optimizer joins a product with its bias and GELU only if their
        # names are in alphabetical order, as they are in one scope.
        self.intermediate = self.make_dense(
            "intermediate",
            config.intermediate_size,
            activation=self.activation,
        )
        self.output_dense = self.make_dense(
            "output",
            config.hidden_size,
            config.intermediate_size,
            scale=config.output_init_scale,
        )
        self.layer_norm = self.make_layer_norm()
        self.output_dropout = self.make_dropout(config.hidden_dropout_prob)

    def call(self, hidden: Tensor, training: bool = False) -> Tensor:
        """Returns the output `[batch * n, H]` for hidden `[batch, n, H]`."""
        flat = ops.reshape(hidden, (-1, self.config.hidden_size))
        later = self._adds_bias_later(training)
        if not later or _is_quantized(self.intermediate):
            return self._output_product(self.intermediate(flat), training)
        return recomputed_product(_biased_activation, self.activation)(
            ops.cast(self.output_dense.kernel, self.compute_dtype),
            product(flat, self.intermediate.kernel),
            self.intermediate.bias,
        )


class TransformerBlock(CompositeLayer):
    """Self-attention, then feed-forward; other blocks may share them."""

    def __init__(
        self,
        attention: SelfAttention,
        feed_forward: FeedForward,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.attention = attention
        self.feed_forward = feed_forward

    def call(
        self,
        hidden: Tensor,
        *,
        attend: Callable,
        dropout_keys: Tensor | None = None,
        training: bool = False,
        read_positions: Tensor | None = None,
        apply_attention: Callable | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns `[batch, seq, H]` and the attention weights, if any.

        Args:
            hidden: `[batch, seq, H]`.
            attend: a row of FORMS with the mask of hidden.
            dropout_keys: `[batch]` or None, see ExampleDropout.
            training: whether dropout is on.
            read_positions: `[batch, n]`, the positions to compute instead of
                all.
            apply_attention: in place of the block's attention; positional
                arguments are those that it differentiates (`recomputed`).
        """
        attention, feed_forward = self.attention, self.feed_forward
        if read_positions is None:
            positions = ops.arange(ops.shape(hidden)[1], dtype="int32")[None]
            states: tuple[Tensor, ...] = (hidden,)
        else:
            positions = read_positions
            states = (hidden, states_at(hidden, positions))
        attention_keys = stream_keys(dropout_keys, 0)
        output, weights = (apply_attention or attention)(
            *states,
            positions=positions,
            attend=attend,
            dropout_keys=stream_keys(attention_keys, 0),
            training=training,
        )
        hidden = attention.add_and_normalize(
            output,
            states[-1],
            stream_keys(attention_keys, 1),
            positions,
            training,
        )
        output = feed_forward(hidden, training=training)
        hidden = feed_forward.add_and_normalize(
            output, hidden, stream_keys(dropout_keys, 1), positions, training
        )
        return hidden, weights
