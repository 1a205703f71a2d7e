"""The transformer block: self-attention, then feed-forward."""

import functools
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
    PackedTokens,
    serializable,
)

# Added to the logits of masked positions: exp of it is 0 in every precision,
# and float16 can hold it (the original's value).
MASKED_LOGIT = -10000.0


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
    """A part that ends in `output_dense`, residual and `layer_norm`."""

    def _output(self, inner: Tensor, training: bool) -> Tensor:
        """Returns `[n, H]`, in training without the bias, still to be added."""
        if training and not _is_quantized(self.output_dense):
            return ops.matmul(inner, self.output_dense.kernel)
        return self.output_dense(inner)

    def _add_and_normalize(
        self,
        output: Tensor,
        hidden: Tensor,
        dropout: ExampleDropout,
        keys: Tensor | None,
        rows: Tensor | None,
        training: bool,
    ) -> Tensor:
        """Returns `[batch, n, H]`: dropout, residual connection, normalisation.

        `rows` `[batch, n]` are the positions of `hidden`, None for all.
        """
        norm = self.layer_norm
        output = ops.reshape(output, ops.shape(hidden))
        if not training or _is_quantized(self.output_dense):
            output = dropout(output, keys=keys, training=training, rows=rows)
            return norm(hidden + output)
        dropout_inputs = ()
        if dropout.rate:
            batch = ops.shape(hidden)[0]
            dropout_inputs = dropout.mask_inputs(batch, keys, rows)
        total = fused(_normalized_sum, norm.epsilon, dropout.rate)
        bias = self.output_dense.bias
        return total(
            output, bias, hidden, norm.gamma, norm.beta, *dropout_inputs
        )


@serializable
class SelfAttention(_BlockPart):
    """Multi-head self-attention with output, residual and normalisation."""

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

    def _context(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        count: int,
        length: int,
        mask_logits: Tensor,
        dropout: Callable,
        packing: PackedTokens | None,
        packed_queries: bool,
    ) -> tuple[Tensor, Tensor]:
        """Returns the context of the queries and the attention weights.

        The context is `[batch * count, H]`, that of packed queries `[n, H]`,
        for `count` queries and `length` keys of a sequence.
        """
        width = self.config.hidden_size
        if packing is not None:
            key, value = packing.padded(key), packing.padded(value)
            query = packing.padded(query) if packed_queries else query
        query = self._split_heads(query, count, (0, 2, 1, 3))
        key = self._split_heads(key, length, (0, 2, 3, 1))
        value = self._split_heads(value, length, (0, 2, 1, 3))
        scale = (width / self.config.num_attention_heads) ** (-0.5)
        logits = ops.matmul(query * scale, key)
        logits = logits + ops.cast(mask_logits, logits.dtype)
        probs = ops.softmax(logits)
        context = ops.matmul(dropout(probs), value)
        context = ops.transpose(context, (0, 2, 1, 3))
        context = ops.reshape(context, (-1, width))
        if packing is not None and packed_queries:
            context = packing.packed(context)
        return context, probs

    def _split_heads(
        self, x: Tensor, length: int, order: tuple[int, ...]
    ) -> Tensor:
        """Returns the axes batch, length, heads and H / heads in this order."""
        heads = self.config.num_attention_heads
        size = self.config.hidden_size // heads
        return ops.transpose(ops.reshape(x, (-1, length, heads, size)), order)

    def call(
        self,
        hidden: Tensor,
        mask_logits: Tensor,
        dropout_keys: Tensor | None = None,
        training: bool = False,
        output_attentions: bool = False,
        read_positions: Tensor | None = None,
        recompute: bool = False,
        packing: PackedTokens | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Returns `[batch, seq, H]`, on request with the attention weights.

        The weights, `[batch, heads, seq, seq]`, are those before dropout: row i
        has the weight of every position in the context of position i.

        Args:
            hidden: `[batch, seq, H]`.
            mask_logits: `[batch, 1, 1, seq]`, added to the logits: 0 for
                tokens, MASKED_LOGIT for padding.
            dropout_keys: `[batch]` or None, see ExampleDropout.
            read_positions: `[batch, n]`, the positions to compute instead of
                all.
            recompute: whether the gradient computes the weights and all that
                leads to the context again; not where a layer is quantized.
            packing: of `hidden` `[n, 1, H]`, packed tokens, which the result is
                too, unless there are read_positions.
        """
        keys = [stream_keys(dropout_keys, site) for site in range(2)]
        width = self.config.hidden_size
        length = packing.seq_length if packing else ops.shape(hidden)[1]
        count = length
        flat = ops.reshape(hidden, (-1, width))
        positions, reader, flat_reader = ops.arange(length)[None], hidden, flat
        output_keys, output_rows = keys[1], read_positions
        if packing and read_positions is None:
            output_keys, output_rows = packing.dropout_rows(keys[1])
        if read_positions is not None:
            count = ops.shape(read_positions)[1]
            if packing:
                reader = packing.states_at(flat, read_positions)
            else:
                reader = states_at(hidden, read_positions)
            flat_reader = ops.reshape(reader, (-1, width))
            positions = read_positions
        # The same for a batch that is cut to a width of its own.
        heads = ops.arange(self.config.num_attention_heads, dtype="int32")
        rows = heads[:, None] * self.config.max_position_embeddings
        rows = rows + ops.cast(positions, "int32")[:, None]
        context_of = functools.partial(
            self._context,
            count=count,
            length=length,
            packing=packing,
            packed_queries=reader is hidden,
            dropout=lambda probs: self.probs_dropout(
                probs, keys=keys[0], training=training, rows=rows
            ),
        )
        parts = (self.query, self.key, self.value, self.output_dense)
        if training and recompute and not any(map(_is_quantized, parts)):

            def again(mask_logits: Tensor, *given: Tensor) -> tuple:
                kernels, biases, states = given[:4], given[4:7], given[7:]
                inputs = (states[0], states[-1], states[-1])
                products = map(ops.matmul, inputs, kernels[:3])
                context, probs = context_of(
                    *map(ops.add, products, biases), mask_logits=mask_logits
                )
                output = ops.matmul(context, kernels[3])
                # An unused result would get a gradient of zeros.
                return (output, probs) if output_attentions else (output,)

            dtype = self.compute_dtype
            output, *probs = keras.remat(again)(
                mask_logits,
                *(ops.cast(part.kernel, dtype) for part in parts),
                *(ops.cast(part.bias, dtype) for part in parts[:3]),
                *((flat,) if reader is hidden else (flat_reader, flat)),
            )
        else:
            context, *probs = context_of(
                self.query(flat_reader),
                self.key(flat),
                self.value(flat),
                mask_logits=mask_logits,
            )
            output = self._output(context, training)
        hidden = self._add_and_normalize(
            output,
            reader,
            self.output_dropout,
            output_keys,
            output_rows,
            training,
        )
        return (hidden, *probs) if output_attentions else hidden


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
        self.dropout = self.make_dropout(config.hidden_dropout_prob)

    def call(
        self,
        hidden: Tensor,
        dropout_keys: Tensor | None = None,
        training: bool = False,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Returns `[batch, seq, H]` for hidden `[batch, seq, H]`.

        `positions` `[batch, n]` are those of `hidden`, if it has not all.
        """
        flat = ops.reshape(hidden, (-1, self.config.hidden_size))
        parts = (self.intermediate, self.output_dense)
        if training and not any(map(_is_quantized, parts)):
            output = recomputed_product(_biased_activation, self.activation)(
                ops.cast(self.output_dense.kernel, self.compute_dtype),
                product(flat, self.intermediate.kernel),
                self.intermediate.bias,
            )
        else:
            output = self._output(self.intermediate(flat), training)
        return self._add_and_normalize(
            output, hidden, self.dropout, dropout_keys, positions, training
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
        mask_logits: Tensor,
        dropout_keys: Tensor | None = None,
        training: bool = False,
        output_attentions: bool = False,
        read_positions: Tensor | None = None,
        recompute: bool = False,
        packing: PackedTokens | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Returns `[batch, seq, H]`; see `SelfAttention.call` for the rest."""
        keys = [stream_keys(dropout_keys, site) for site in range(2)]
        attended = self.attention(
            hidden,
            mask_logits,
            dropout_keys=keys[0],
            training=training,
            output_attentions=output_attentions,
            read_positions=read_positions,
            recompute=recompute,
            packing=packing,
        )
        hidden, probs = attended if output_attentions else (attended, None)
        positions = read_positions
        if packing and read_positions is None:
            keys[1], positions = packing.dropout_rows(keys[1])
        hidden = self.feed_forward(
            hidden,
            dropout_keys=keys[1],
            training=training,
            positions=positions,
        )
        return (hidden, probs) if output_attentions else hidden
