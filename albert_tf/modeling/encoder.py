"""The encoder: embeddings, blocks with shared weights, pooler."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import (
    ATTENTION_FORMS,
    REMAT,
    lookup,
    require,
    sharing_plan,
)
from albert_tf.modeling.attention import (
    FORMS,
    mask_to_logits,
    training_form,
)
from albert_tf.modeling.blocks import (
    FeedForward,
    SelfAttention,
    TransformerBlock,
)
from albert_tf.modeling.dropout import drawn_keys, stream_keys
from albert_tf.modeling.embeddings import Embeddings
from albert_tf.modeling.layers import (
    Config,
    ConfiguredLayer,
    serializable,
)
from albert_tf.modeling.recomputation import recomputed_layer
from albert_tf.modeling.shared_weights import SharedWeights


def _name(base: str, number: int) -> str:
    return f"{base}_{number}" if number else base


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
        attention: str = "auto",
        name: str = "encoder",
        **kwargs: Any,
    ) -> None:
        """Makes the layers.

        Args:
            config: the architecture.
            pooler: whether there is a pooled output; some fine-tuned models of
                other libraries come without.
            remat: activation checkpointing in training, for less memory, more
                time and equal gradients: "none", of a block only activations
                and attention of more than LONGEST_CHUNK queries are computed
                again; "selective", the whole of attention, its residual and
                normalisation included; "full", the inside of every block.
            attention: its form in training: "auto"; "plain", in operations of
                Keras; "cudnn" or "pallas", see KERNELS.
        """
        lookup(dict.fromkeys(REMAT), remat, "remat")
        lookup(dict.fromkeys(ATTENTION_FORMS), attention, "attention")
        # It has no weights but those of its parts, which cast their own.
        # Shared weights stay float32 between blocks.
        super().__init__(config, name=name, autocast=False, **kwargs)
        config, policy = self.config, self.dtype_policy
        self.remat, self.attention = remat, attention
        self.plan = sharing_plan(config)
        self.embeddings = Embeddings(config, name="embeddings", dtype=policy)
        self.projection = None
        if config.projects_embeddings:
            self.projection = self.make_dense(
                "projection", config.hidden_size, config.embedding_size
            )
        pairs = list(dict.fromkeys(self.plan))
        self.blocks = self._make_blocks(pairs)
        self.applications = [pairs.index(pair) for pair in self.plan]
        self.pooler = None
        if pooler:
            self.pooler = self.make_dense("pooler", config.hidden_size)
        self.seed_generator = None
        if config.hidden_dropout_prob or config.attention_probs_dropout_prob:
            self.seed_generator = keras.random.SeedGenerator()

    def _make_blocks(
        self, pairs: Sequence[tuple[int, int]]
    ) -> list[TransformerBlock]:
        """Returns a block for each pair of ids; equal ids share weights."""
        config, policy = self.config, self.dtype_policy
        attentions: dict[int, SelfAttention] = {}
        feed_forwards: dict[int, FeedForward] = {}
        blocks = []
        for number, (attention, feed_forward) in enumerate(pairs):
            if attention not in attentions:
                name = _name("attention", attention)
                attentions[attention] = SelfAttention(
                    config, name=name, dtype=policy
                )
            if feed_forward not in feed_forwards:
                name = _name("feed_forward", feed_forward)
                feed_forwards[feed_forward] = FeedForward(
                    config, name=name, dtype=policy
                )
            block = TransformerBlock(
                attentions[attention],
                feed_forwards[feed_forward],
                name=_name("block", number),
                dtype=policy,
            )
            blocks.append(block)
        return blocks

    def call(
        self,
        features: Mapping[str, Tensor],
        dropout_keys: Tensor | None = None,
        training: bool = False,
        read_positions: Tensor | None = None,
        num_applications: int | None = None,
        output_attentions: bool = False,
    ) -> dict[str, Any]:
        """Returns the hidden states of all layers, and what is made of them.

        Args:
            features: `input_ids`, `segment_ids` `[batch, seq]` integers, and
                `input_mask` `[batch, seq]`, 1 for tokens, 0 for padding.
            dropout_keys: `[batch]` uint32 or None, see ExampleDropout.
            training: whether dropout is on.
            read_positions: `[batch, n]` int32, the positions that the last
                block computes beside the first. They may repeat.
            num_applications: of blocks, from the plan's beginning; None: all.
            output_attentions: whether the attention weights are returned; they
                are then not computed again in the backward pass.

        Returns:
            `sequence_output` `[batch, seq, H]`, or with read_positions in its
            place `read_output` `[batch, n, H]`; `pooled_output` `[batch,
            H]`, the tanh of a dense layer on the first position;
            `hidden_states`, the input of the first block, then each block's
            output; on request `attentions` `[batch, heads, seq, seq]`, one of
            each block. With read_positions the last of both have those rows
            only, the first position's in front.

        Raises:
            UserError: when the plan has no such number of applications.
        """
        if dropout_keys is None and training and self.seed_generator:
            # Not in every layer: what remat computes again has these masks.
            batch = ops.shape(features["input_ids"])[0]
            dropout_keys = drawn_keys(batch, self.seed_generator)
        if read_positions is not None:
            first = ops.zeros_like(features["input_ids"][:, :1], "int32")
            read_positions = ops.concatenate([first, read_positions], axis=1)
        hidden = self._embed(features, stream_keys(dropout_keys, 0), training)
        remat, form = self._remat_and_form(training, output_attentions)
        mask = mask_to_logits(features["input_mask"], self.compute_dtype)
        attend = functools.partial(FORMS[form], mask_logits=mask)
        blocks = self._blocks_to_apply(num_applications)
        shared = SharedWeights(blocks, self.dtype_policy, training)
        outputs: dict[str, Any] = {"hidden_states": [hidden]}
        for number, block in enumerate(blocks, start=1):
            is_last = number == len(blocks)
            keys = stream_keys(dropout_keys, number)
            apply = recomputed_layer(block) if remat == "full" else block
            with shared.values_for(block):
                hidden, weights = apply(
                    hidden,
                    attend=attend,
                    dropout_keys=keys,
                    training=training,
                    read_positions=read_positions if is_last else None,
                    recompute_attention=remat == "selective",
                )
            outputs["hidden_states"].append(hidden)
            if output_attentions:
                outputs.setdefault("attentions", []).append(weights)
        return outputs | self._last_outputs(hidden, read_positions is not None)

    def _remat_and_form(
        self, training: bool, output_attentions: bool
    ) -> tuple[str, str]:
        """Returns the setting `remat` of this pass, and a name in FORMS."""
        if output_attentions:
            return "none", "with_weights"
        if not training:
            return "none", "plain"
        dtype = self.compute_dtype
        return self.remat, training_form(self.attention, self.config, dtype)

    def _blocks_to_apply(
        self, num_applications: int | None
    ) -> list[TransformerBlock]:
        """Returns the block of each application, in their order."""
        total = len(self.applications)
        if num_applications is None:
            num_applications = total
        require(
            type(num_applications) is int and 1 <= num_applications <= total,
            f"num_applications={num_applications!r} must be a whole number "
            f"from 1 to {total}, the block applications of this architecture.",
        )
        return [self.blocks[n] for n in self.applications[:num_applications]]

    def _embed(
        self,
        features: Mapping[str, Tensor],
        dropout_keys: Tensor | None,
        training: bool,
    ) -> Tensor:
        """Returns the embeddings, projected to `[batch, seq, H]`."""
        embedded = self.embeddings(
            features["input_ids"],
            features["segment_ids"],
            dropout_keys=dropout_keys,
            training=training,
        )
        if not self.projection:
            return embedded
        # A product of more than two axes is a dozen operations.
        flat = ops.reshape(embedded, (-1, self.config.embedding_size))
        shape = (*ops.shape(embedded)[:2], self.config.hidden_size)
        return ops.reshape(self.projection(flat), shape)

    def _last_outputs(
        self, hidden: Tensor, reads_positions: bool
    ) -> dict[str, Tensor]:
        """Returns the states of the last block, and the pooled output."""
        if reads_positions:
            outputs = {"read_output": hidden[:, 1:]}
        else:
            outputs = {"sequence_output": hidden}
        if self.pooler:
            outputs["pooled_output"] = ops.tanh(self.pooler(hidden[:, 0]))
        return outputs

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "pooler": self.pooler is not None,
            "remat": self.remat,
            "attention": self.attention,
        }
