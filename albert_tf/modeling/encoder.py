"""The encoder: embeddings, blocks with shared weights, pooler."""

import collections
import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import REMAT, require, sharing_plan
from albert_tf.modeling.accounting import has_projection
from albert_tf.modeling.blocks import (
    MASKED_LOGIT,
    FeedForward,
    SelfAttention,
    TransformerBlock,
)
from albert_tf.modeling.dropout import drawn_keys, stream_keys
from albert_tf.modeling.kernels import shared_use
from albert_tf.modeling.layers import (
    Config,
    ConfiguredLayer,
    Embeddings,
    PackedTokens,
    serializable,
)


def _name(base: str, number: int) -> str:
    return f"{base}_{number}" if number else base


def _apply_in_training(
    block: TransformerBlock,
    apply: Callable,
    shared_values: dict[str, tuple],
    uses_left: dict[str, int],
    recompute: bool,
    hidden: Tensor,
) -> Tensor | tuple[Tensor, Tensor]:
    """Returns `apply(hidden)`, with `shared_use` of matrices used elsewhere.

    Otherwise the gradients of all applications of a shared matrix, which fill
    the memory of a large model, are kept until the last is there.

    Args:
        block: whose weights `apply` uses.
        apply: the block with its other arguments.
        shared_values: of the shared matrices of earlier blocks, by path: each
            as that block returned it, and in the layers' type; updated.
        uses_left: the number of later blocks that use a variable, by path.
        recompute: whether the inside is computed again for the gradient.
        hidden: the input.
    """
    shared: list[keras.Variable] = []
    own: list[keras.Variable] = []
    for variable in block.weights:
        is_shared = variable.path in shared_values or uses_left[variable.path]
        (shared if is_shared and _is_matrix(variable) else own).append(variable)
    # Now: in a recomputation no use will be left.
    is_last = [not uses_left[variable.path] for variable in shared]

    def compute(hidden: Tensor, *given: object) -> tuple:
        weights, casts = given[: len(shared)], given[len(shared) :]
        values = list(zip(own, casts[len(shared) :], strict=True))
        returned = []
        for variable, weight, value, last in zip(
            shared, weights, casts, is_last, strict=False
        ):
            value, weight = shared_use(weight, value, last)
            values.append((variable, value))
            returned.append(weight)
        return (_applied(apply, values, hidden), *returned)

    for variable in shared:
        if variable.path not in shared_values:
            weight = _read(variable)
            cast = ops.cast(weight, block.compute_dtype)
            shared_values[variable.path] = (weight, cast)
    found = [shared_values[variable.path] for variable in shared]
    if recompute:
        compute = keras.remat(compute)
    outputs, *returned = compute(
        hidden,
        *(weight for weight, _ in found),
        *(cast for _, cast in found),
        *map(_read, own),
    )
    for variable, weight, (_, cast) in zip(
        shared, returned, found, strict=True
    ):
        shared_values[variable.path] = (weight, cast)
    return outputs


def _read(variable: keras.Variable) -> Tensor:
    """Returns a variable's value as a tensor, which a tape sees."""
    return ops.reshape(variable, variable.shape)


def _is_matrix(variable: keras.Variable) -> bool:
    """Returns whether a variable is a matrix of floats, not quantized."""
    is_float = keras.backend.is_float_dtype(variable.dtype)
    return is_float and len(variable.shape) == 2


def _applied(
    apply: Callable, values: list[tuple], hidden: Tensor
) -> Tensor | tuple[Tensor, Tensor]:
    """Returns `apply(hidden)` with these values of its variables."""
    scope = keras.StatelessScope()
    for variable, value in values:
        # Not the constructor: it would cast back to the variable's type.
        scope.add_update((variable, value))
    with scope:
        return apply(hidden)


@serializable
class AlbertEncoder(ConfiguredLayer):
    """Embeddings, projection E to H, the blocks, and the pooler.

    When E equals H there is no projection, as in the original, unless the
    architecture asks for one.
    """

    def __init__(
        self,
        config: Config,
        pooler: bool = True,
        remat: str = "none",
        name: str = "encoder",
        **kwargs: Any,
    ) -> None:
        """Makes the layers.

        Args:
            config: the architecture.
            pooler: whether there is a pooled output; some fine-tuned models of
                other libraries come without.
            remat: activation checkpointing in training, for less memory, more
                time and equal gradients: "none"; "selective", of every block
                queries, keys, values, attention weights and context, unless
                quantized; "full", the whole inside of every block. (XLA orders
                the work itself; on CPUs it then saves little.)
        """
        require(
            remat in REMAT,
            f"remat={remat!r} is unknown; allowed: {', '.join(REMAT)}.",
        )
        # It has no weights but those of its parts, which cast their own.
        # Shared weights stay float32 between blocks.
        super().__init__(config, name=name, autocast=False, **kwargs)
        config, policy = self.config, self.dtype_policy
        self.remat = remat
        self.plan = sharing_plan(config)
        self.embeddings = Embeddings(config, name="embeddings", dtype=policy)
        self.projection = None
        if has_projection(config):
            self.projection = self.make_dense(
                "projection", config.hidden_size, config.embedding_size
            )

        @functools.cache
        def part(kind: Callable, base: str, number: int) -> Any:
            return kind(config, name=_name(base, number), dtype=policy)

        pairs = list(dict.fromkeys(self.plan))
        self.blocks = [
            TransformerBlock(
                part(SelfAttention, "attention", attention),
                part(FeedForward, "feed_forward", feed_forward),
                name=_name("block", number),
                dtype=policy,
            )
            for number, (attention, feed_forward) in enumerate(pairs)
        ]
        self.applications = [pairs.index(pair) for pair in self.plan]
        self.pooler = None
        if pooler:
            self.pooler = self.make_dense("pooler", config.hidden_size)
        self.seed_generator = None
        if config.hidden_dropout_prob or config.attention_probs_dropout_prob:
            self.seed_generator = keras.random.SeedGenerator()

    def call(
        self,
        input_ids: Tensor,
        input_mask: Tensor,
        segment_ids: Tensor,
        dropout_keys: Tensor | None = None,
        training: bool = False,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        read_positions: Tensor | None = None,
        num_applications: int | None = None,
        token_capacity: int | None = None,
    ) -> dict[str, Tensor]:
        """Returns the hidden states of the last layer, and more on request.

        Args:
            input_ids, segment_ids: `[batch, seq]` integers.
            input_mask: `[batch, seq]`, 1 for tokens, 0 for padding.
            dropout_keys: `[batch]` uint32 or None, see ExampleDropout.
            training: whether dropout is on.
            read_positions: `[batch, n]`, the positions that the last block
                computes beside the first. They may repeat.
            num_applications: of blocks, from the plan's beginning; None: all.
            token_capacity: how many tokens the dense layers compute, packed one
                after another without padding; more than there are in
                `input_mask`, and with read_positions only. None: all, padding
                too.

        Returns:
            `sequence_output` `[batch, seq, H]`, or with read_positions in its
            place `read_output` `[batch, n, H]`; and `pooled_output` `[batch,
            H]`, the tanh of a dense layer on the first position. On request
            lists over the applications: `hidden_states`, the input of the first
            block, then every output; and `attentions` `[batch, heads, seq,
            seq]`, of which the last have with read_positions only those rows,
            the first position's in front.

        Raises:
            UserError: when the plan has no such number of applications, or
                for a token_capacity without read_positions.
        """
        total = len(self.applications)
        if num_applications is None:
            num_applications = total
        require(
            type(num_applications) is int and 1 <= num_applications <= total,
            f"num_applications={num_applications!r} must be a whole number "
            f"from 1 to {total}, the block applications of this architecture.",
        )
        require(
            token_capacity is None or read_positions is not None,
            f"token_capacity={token_capacity} packs sequences, whose states "
            "are returned at read_positions only; give these too, or a model "
            "heads_only=True.",
        )
        applications = self.applications[:num_applications]
        if read_positions is not None:
            read_positions = ops.concatenate(
                [
                    ops.zeros((ops.shape(input_ids)[0], 1), "int32"),
                    ops.cast(read_positions, "int32"),
                ],
                axis=1,
            )
        if dropout_keys is None and training and self.seed_generator:
            # Here, and not in every layer: what remat computes again must
            # see the same masks.
            dropout_keys = drawn_keys(
                ops.shape(input_ids)[0], self.seed_generator
            )
        hidden = self.embeddings(
            input_ids,
            segment_ids,
            dropout_keys=stream_keys(dropout_keys, 0),
            training=training,
        )
        packing = None
        if token_capacity is not None:
            packing = PackedTokens.of(input_mask, token_capacity)
            hidden = ops.reshape(hidden, (-1, self.config.embedding_size))
            hidden = packing.packed(hidden)[:, None]
        if self.projection:
            # As a matrix: a product of more axes is a dozen operations.
            shape = (*ops.shape(hidden)[:2], self.config.hidden_size)
            flat = ops.reshape(hidden, (-1, self.config.embedding_size))
            hidden = ops.reshape(self.projection(flat), shape)
        mask = ops.cast(input_mask, self.compute_dtype)
        mask_logits = (1.0 - ops.expand_dims(mask, (1, 2))) * MASKED_LOGIT
        hidden_states, attentions = [hidden], []
        shared_values: dict[str, tuple] = {}
        casts: dict[int, list[tuple]] = {}
        uses_left = collections.Counter(
            variable.path
            for number in applications
            for variable in self.blocks[number].weights
        )
        for site, number in enumerate(applications, start=1):
            last = site == len(applications)
            block: Any = self.blocks[number]
            apply = functools.partial(
                block,
                mask_logits=mask_logits,
                dropout_keys=stream_keys(dropout_keys, site),
                training=training,
                output_attentions=output_attentions,
                read_positions=read_positions if last else None,
                recompute=training and self.remat == "selective",
                packing=packing,
            )
            if training:
                uses_left.subtract(variable.path for variable in block.weights)
                apply = functools.partial(
                    _apply_in_training,
                    block,
                    apply,
                    shared_values,
                    uses_left,
                    self.remat == "full",
                )
            elif self.compute_dtype != self.variable_dtype:
                if number not in casts:
                    # Once for all applications. Vectors stay float32, which
                    # normalisation needs.
                    casts[number] = [
                        (matrix, ops.cast(matrix.value, self.compute_dtype))
                        for matrix in filter(_is_matrix, block.weights)
                    ]
                apply = functools.partial(_applied, apply, casts[number])
            hidden = apply(hidden)
            if output_attentions:
                hidden, probs = hidden
                attentions.append(probs)
            hidden_states.append(hidden)
        if read_positions is None:
            outputs = {"sequence_output": hidden}
        else:
            outputs = {"read_output": hidden[:, 1:]}
        if self.pooler:
            outputs["pooled_output"] = ops.tanh(self.pooler(hidden[:, 0]))
        if output_hidden_states:
            outputs["hidden_states"] = hidden_states
        if output_attentions:
            outputs["attentions"] = attentions
        return outputs

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "pooler": self.pooler is not None,
            "remat": self.remat,
        }
