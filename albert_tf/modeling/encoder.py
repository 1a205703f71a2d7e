"""The encoder: which layer uses which weights, and the way through them."""

import collections
import functools
from collections.abc import Callable, Mapping

import keras
from keras import ops

from albert_tf.config import REMAT, ModelConfig, UserError, sharing_plan
from albert_tf.modeling.dropout import drawn_keys, fold_in
from albert_tf.modeling.fused import handed_on
from albert_tf.modeling.layers import (
    MASKED_LOGIT,
    ConfiguredLayer,
    Embeddings,
    FeedForward,
    SelfAttention,
    TransformerBlock,
    dense,
    serializable,
)


def _name(base: str, number: int) -> str:
    return f"{base}_{number}" if number else base


def _trained(
    block: TransformerBlock,
    apply: Callable,
    handed: dict[str, tuple],
    uses_left: Mapping[str, int],
    recompute: bool,
    hidden: keras.KerasTensor,
) -> keras.KerasTensor | tuple[keras.KerasTensor, keras.KerasTensor]:
    """Returns `apply(hidden)`, the matrices that are used often handed on.

    They go in as arguments and come out for the next block that uses them. So
    the gradient of a shared matrix is summed on the way back, block by block;
    otherwise every block's part is kept until the last is there, and these
    parts, not the hidden states, fill the memory of a large model.

    Args:
        block: whose weights `apply` uses.
        apply: the block with its other arguments.
        handed: the matrices that came out of earlier blocks, by path, each
            as it is and in the layers' type; updated.
        uses_left: how many later blocks use a variable, by path.
        recompute: whether the inside is computed again for the gradient.
        hidden: `[batch, seq, H]`.
    """
    shared, own = [], []
    for variable in block.weights:
        often = variable.path in handed or uses_left[variable.path]
        (shared if often and _is_matrix(variable) else own).append(variable)
    # Now: when it is computed again, no use will be left.
    uses = [uses_left[v.path] for v in shared]

    def compute(hidden: keras.KerasTensor, *given: object) -> tuple:
        values = list(zip(own, given[2 * len(shared) :], strict=True))
        onward = []
        for number, variable in enumerate(shared):
            weight, value = given[2 * number : 2 * number + 2]
            value, weight, next_value = handed_on(weight, value, uses[number])
            onward += [weight, next_value]
            values.append((variable, value))
        return (_applied(apply, values, hidden), *onward)

    given = []
    for variable in shared:
        if variable.path not in handed:
            weight = _read(variable)
            value = ops.cast(weight, block.compute_dtype)
            handed[variable.path] = (weight, value)
        given += handed[variable.path]
    given += map(_read, own)
    if recompute:
        compute = keras.remat(compute)
    outputs, *onward = compute(hidden, *given)
    for number, variable in enumerate(shared):
        handed[variable.path] = tuple(onward[2 * number : 2 * number + 2])
    return outputs


def _cast_matrices(
    block: TransformerBlock,
) -> list[tuple[keras.Variable, keras.KerasTensor]]:
    """Returns a block's variables and values, matrices as layers want them.

    Once for all applications: each would cast them anew. Vectors stay as they
    are, since normalisation wants them in float32.
    """
    values = []
    for variable in block.weights:
        value = variable.value
        if _is_matrix(variable):
            value = ops.cast(value, block.compute_dtype)
        values.append((variable, value))
    return values


def _read(variable: keras.Variable) -> keras.KerasTensor:
    """Returns a variable's value as a tensor, which a tape sees."""
    return ops.reshape(variable, variable.shape)


def _is_matrix(variable: keras.Variable) -> bool:
    """Returns whether a variable is a matrix of floats; quantized is none."""
    is_float = keras.backend.is_float_dtype(variable.dtype)
    return is_float and len(variable.shape) == 2


def _applied(
    apply: Callable, values: list[tuple], hidden: keras.KerasTensor
) -> keras.KerasTensor | tuple[keras.KerasTensor, keras.KerasTensor]:
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

    With sharing "all" and one group a single TransformerBlock is called
    num_hidden_layers times. When E equals H there is no projection, as in the
    original, unless the architecture asks for one.
    """

    def __init__(
        self,
        config: ModelConfig | Mapping,
        pooler: bool = True,
        remat: str = "none",
        name: str = "encoder",
        **kwargs: object,
    ) -> None:
        """Makes the layers.

        Args:
            config: the architecture.
            pooler: whether there is a pooled output; some fine-tuned models
                of other libraries come without.
            remat: what training computes again for the gradient instead of
                keeping it, for less memory, more time and equal gradients:
                "none"; "selective", what is large for its arithmetic (of
                every block queries, keys, values, attention weights and what
                is read by them, unless quantized); "full", the whole inside
                of every block. (XLA orders the work itself; on CPUs it then
                saves little.)
            name: the layer's name.
            **kwargs: as any layer's.

        Raises:
            UserError: when `remat` is none of these.
        """
        if remat not in REMAT:
            raise UserError(
                f"remat={remat!r} is unknown; allowed: {', '.join(REMAT)}."
            )
        # It has no weights but those of its parts, which cast their own. What
        # is handed from block to block stays float32.
        super().__init__(config, name, autocast=False, **kwargs)
        config = self.config
        policy = self.dtype_policy
        self.remat = remat
        self.plan = sharing_plan(config)
        self.embeddings = Embeddings(config, dtype=policy)
        self.projection = None
        if (
            config.embedding_size != config.hidden_size
            or config.always_project_embeddings
        ):
            self.projection = dense(
                config, config.hidden_size, "projection", policy
            )
        attentions: dict[int, SelfAttention] = {}
        feed_forwards: dict[int, FeedForward] = {}
        blocks: dict[tuple[int, int], TransformerBlock] = {}
        for pair in self.plan:
            attention, feed_forward = pair
            if attention not in attentions:
                attentions[attention] = SelfAttention(
                    config, name=_name("attention", attention), dtype=policy
                )
            if feed_forward not in feed_forwards:
                feed_forwards[feed_forward] = FeedForward(
                    config, _name("feed_forward", feed_forward), dtype=policy
                )
            if pair not in blocks:
                blocks[pair] = TransformerBlock(
                    attentions[attention],
                    feed_forwards[feed_forward],
                    name=_name("block", len(blocks)),
                    dtype=policy,
                )
        self.blocks = list(blocks.values())
        order = list(blocks)
        self.applications = [order.index(pair) for pair in self.plan]
        self.pooler = None
        if pooler:
            self.pooler = dense(config, config.hidden_size, "pooler", policy)
        self.seed_generator = None
        if config.hidden_dropout_prob or config.attention_probs_dropout_prob:
            self.seed_generator = keras.random.SeedGenerator()

    def build(self, input_shape: object = None) -> None:
        """Creates every weight."""
        hidden = (None, None, self.config.hidden_size)
        self.embeddings.build()
        if self.projection:
            self.projection.build((None, None, self.config.embedding_size))
        for block in self.blocks:
            block.build(hidden)
        if self.pooler:
            self.pooler.build((None, self.config.hidden_size))
        self.built = True

    def call(
        self,
        input_ids: keras.KerasTensor,
        input_mask: keras.KerasTensor,
        segment_ids: keras.KerasTensor,
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        read_positions: keras.KerasTensor | None = None,
        num_applications: int | None = None,
    ) -> dict[str, keras.KerasTensor]:
        """Returns the hidden states of the last layer and what else is asked.

        Args:
            input_ids: `[batch, seq]` integers.
            input_mask: `[batch, seq]`, 1 for tokens, 0 for padding.
            segment_ids: `[batch, seq]` integers.
            dropout_keys: `[batch]` uint32 or None (see ExampleDropout).
            training: whether dropout is on.
            output_hidden_states: whether to return every layer's output.
            output_attentions: whether to return every layer's attention.
            read_positions: `[batch, n]`: where the last block's output will
                be read; it is computed only there and at the first position.
                They may repeat.
            num_applications: how many blocks of the plan are applied, from
                its beginning; by default all.

        Returns:
            `sequence_output` `[batch, seq, H]`, or with read_positions in
            its place `read_output` `[batch, n, H]`; and `pooled_output`
            `[batch, H]`, the tanh of a dense layer on the first position.
            On request `hidden_states`, a list: what enters the first block,
            then the output of every block; and `attentions`, a list: the
            attention weights `[batch, heads, seq, seq]` of every block. A
            block that is applied often counts each time. With read_positions
            the last of them have but the rows that are computed, the first
            position's in front.

        Raises:
            UserError: when the plan has no such number of applications.
        """
        applications = self._first_applications(num_applications)
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

        def keys_of(site: int) -> keras.KerasTensor | None:
            return None if dropout_keys is None else fold_in(dropout_keys, site)

        hidden = self.embeddings(
            input_ids, segment_ids, dropout_keys=keys_of(0), training=training
        )
        if self.projection:
            hidden = self.projection(hidden)
        mask = ops.cast(input_mask, self.compute_dtype)
        mask_logits = (1.0 - mask[:, None, None, :]) * MASKED_LOGIT
        hidden_states, attentions = [hidden], []
        handed: dict[str, tuple] = {}
        casts: dict[int, list[tuple]] = {}
        uses_left = collections.Counter(
            variable.path
            for number in applications
            for variable in self.blocks[number].weights
        )
        for site, number in enumerate(applications, start=1):
            last = site == len(applications)
            block = self.blocks[number]
            apply = functools.partial(
                block,
                mask_logits=mask_logits,
                dropout_keys=keys_of(site),
                training=training,
                output_attentions=output_attentions,
                read_positions=read_positions if last else None,
                recompute=training and self.remat == "selective",
            )
            if training:
                uses_left.subtract(variable.path for variable in block.weights)
                apply = functools.partial(
                    _trained,
                    block,
                    apply,
                    handed,
                    uses_left,
                    self.remat == "full",
                )
            elif self.compute_dtype != self.variable_dtype:
                if number not in casts:
                    casts[number] = _cast_matrices(block)
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

    def _first_applications(self, count: int | None) -> list[int]:
        """Returns the numbers of the blocks to apply, in order."""
        most = len(self.applications)
        if count is None:
            return self.applications
        if type(count) is not int or not 1 <= count <= most:
            raise UserError(
                f"num_applications={count!r} must be a whole number from 1 to "
                f"{most}, the block applications that this architecture has."
            )
        return self.applications[:count]

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "pooler": self.pooler is not None,
            "remat": self.remat,
        }
