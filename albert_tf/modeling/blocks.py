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
from albert_tf.modeling.kernels import fused, product, states_at
from albert_tf.modeling.layers import (
    ACTIVATIONS,
    CompositeLayer,
    Config,
    ConfiguredLayer,
    serializable,
)
from albert_tf.modeling.recomputation import (
    recomputed_layer,
    recomputed_product,
)

# Each sub-layer has a stream of dropout keys; attention's is divided into one
# for its weights and one for its output.
_ATTENTION, _FEED_FORWARD = 0, 1
_WEIGHTS, _OUTPUT = 0, 1


def _is_quantized(layer: keras.layers.Dense) -> bool:
    """Returns whether only Keras can multiply by the kernel."""
    return layer.quantization_mode is not None


def _at_least_float32(x: Tensor) -> Tensor:
    """Returns float32, and float64 as it is."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


def _biased_activation(activation: Callable, x: Tensor, bias: Tensor) -> Tensor:
    """Returns `activation(x + bias)`, computed in at least float32."""
    total = _at_least_float32(x) + _at_least_float32(bias)
    return ops.cast(activation(total), x.dtype)


def _fused_add_and_norm(
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
    total = _at_least_float32(output) + _at_least_float32(bias)
    if rate:
        total = apply_dropout(rate, total, *dropout_inputs)
    total = total + _at_least_float32(hidden)
    normed = ops.layer_normalization(total, gamma, beta, epsilon=epsilon)
    return ops.cast(normed, output.dtype)


class _SubLayer(ConfiguredLayer):
    """Ends with `LayerNorm(hidden + dropout(output_dense(x)))`.

    A state's row in dropout is its position in the sequence, so that a few
    states are dropped as all of them would be.
    """

    output_dense: keras.layers.Dense
    layer_norm: keras.layers.LayerNormalization
    output_dropout: ExampleDropout

    def _is_fused(self, training: bool) -> bool:
        """Returns whether bias, dropout, sum and normalisation are one pass.

        In inference, and of a quantized kernel, Keras' layers are called.
        """
        return training and not _is_quantized(self.output_dense)

    def _add_and_norm(
        self,
        x: Tensor,
        hidden: Tensor,
        dropout_keys: Tensor | None,
        positions: Tensor,
        training: bool,
    ) -> Tensor:
        """Returns the states `[batch, n, H]` with which the layer ends.

        Args:
            x: `[batch * n, width]`.
            hidden: what is added, `[batch, n, H]`.
            dropout_keys: `[batch]` or None, see ExampleDropout.
            positions: of the states in the sequence, `[batch, n]` or `[1, n]`.
            training: whether dropout is on.
        """
        if self._is_fused(training):
            product = ops.matmul(x, self.output_dense.kernel)
            return self._add_and_norm_in_one_pass(
                product, hidden, dropout_keys, positions
            )
        output = ops.reshape(self.output_dense(x), ops.shape(hidden))
        output = self.output_dropout(
            output, keys=dropout_keys, training=training, rows=positions
        )
        return self.layer_norm(hidden + output)

    def _add_and_norm_in_one_pass(
        self,
        product: Tensor,
        hidden: Tensor,
        dropout_keys: Tensor | None,
        positions: Tensor,
    ) -> Tensor:
        """Returns `_add_and_norm` in training, of `x @ kernel` without bias."""
        norm, dropout = self.layer_norm, self.output_dropout
        product = ops.reshape(product, ops.shape(hidden))
        dropout_inputs = ()
        if dropout.rate:
            batch = ops.shape(hidden)[0]
            dropout_inputs = dropout.mask_inputs(batch, dropout_keys, positions)
        return fused(_fused_add_and_norm, norm.epsilon, dropout.rate)(
            product,
            self.output_dense.bias,
            hidden,
            norm.gamma,
            norm.beta,
            *dropout_inputs,
        )


@serializable
class SelfAttention(_SubLayer):
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
        """Returns the states `[batch, n, H]` and the attention weights, if any.

        Args:
            hidden: `[batch, seq, H]`, the states that are attended to.
            queries: `[batch, n, H]`, the states that attend; None: all.
            positions: of the states in the sequence, `[batch, n]` or `[1, n]`.
            attend: a row of FORMS with the mask of hidden.
            dropout_keys: `[batch]` or None, see ExampleDropout.
            training: whether dropout is on.
        """
        queries = hidden if queries is None else queries
        weight_keys = stream_keys(dropout_keys, _WEIGHTS)

        def dropout(weights: Tensor, positions: Tensor) -> Tensor:
            rows = self._rows_of_heads(positions)
            return self.probs_dropout(
                weights, keys=weight_keys, training=training, rows=rows
            )

        context, weights = attend(
            self._heads_of(self.query, queries),
            self._heads_of(self.key, hidden),
            self._heads_of(self.value, hidden),
            positions=positions,
            dropout=dropout,
        )
        context = ops.reshape(context, (-1, self.config.hidden_size))
        output_keys = stream_keys(dropout_keys, _OUTPUT)
        return self._add_and_norm(
            context, queries, output_keys, positions, training
        ), weights

    def _heads_of(self, dense: keras.layers.Dense, states: Tensor) -> Tensor:
        """Returns `dense` of the states as `[batch, n, heads, H / heads]`."""
        width, heads = self.config.hidden_size, self.config.num_attention_heads
        flat = dense(ops.reshape(states, (-1, width)))
        count = ops.shape(states)[1]
        return ops.reshape(flat, (-1, count, heads, width // heads))

    def _rows_of_heads(self, positions: Tensor) -> Tensor:
        """Returns the rows `[..., heads, n]` in dropout of weights.

        They use max_position_embeddings, not the batch's length, so that
        padding cannot change a mask.
        """
        heads = ops.arange(self.config.num_attention_heads, dtype="int32")
        rows = heads[:, None] * self.config.max_position_embeddings
        return rows + positions[:, None]


@serializable
class FeedForward(_SubLayer):
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

    def call(
        self,
        hidden: Tensor,
        *,
        positions: Tensor,
        dropout_keys: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        """Returns `[batch, n, H]` for hidden `[batch, n, H]`.

        `LayerNorm(hidden + dropout(activation(hidden W1 + b1) W2 + b2))`.

        Args:
            hidden: the states.
            positions: of the states in the sequence, `[batch, n]` or `[1, n]`.
            dropout_keys: `[batch]` or None, see ExampleDropout.
            training: whether dropout is on.
        """
        flat = ops.reshape(hidden, (-1, self.config.hidden_size))
        if self._is_fused(training) and not _is_quantized(self.intermediate):
            output = recomputed_product(_biased_activation, self.activation)(
                ops.cast(self.output_dense.kernel, self.compute_dtype),
                product(flat, self.intermediate.kernel),
                self.intermediate.bias,
            )
            return self._add_and_norm_in_one_pass(
                output, hidden, dropout_keys, positions
            )
        x = self.intermediate(flat)
        return self._add_and_norm(x, hidden, dropout_keys, positions, training)


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
        recompute_attention: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the states and the attention weights, if any.

        The states are `[batch, seq, H]`, with read_positions `[batch, n, H]`.

        Args:
            hidden: `[batch, seq, H]`.
            attend: a row of FORMS with the mask of hidden.
            dropout_keys: `[batch]` or None, see ExampleDropout.
            training: whether dropout is on.
            read_positions: `[batch, n]`, the positions to compute instead of
                all.
            recompute_attention: whether the backward pass computes attention
                again.
        """
        if read_positions is None:
            positions = ops.arange(ops.shape(hidden)[1], dtype="int32")[None]
            queries = []
        else:
            positions = read_positions
            queries = [states_at(hidden, read_positions)]
        attention: Callable = self.attention
        if recompute_attention:
            attention = recomputed_layer(attention)
        hidden, weights = attention(
            hidden,
            *queries,
            positions=positions,
            attend=attend,
            dropout_keys=stream_keys(dropout_keys, _ATTENTION),
            training=training,
        )
        hidden = self.feed_forward(
            hidden,
            positions=positions,
            dropout_keys=stream_keys(dropout_keys, _FEED_FORWARD),
            training=training,
        )
        return hidden, weights
