"""The encoder: which layer uses which weights, and the way through them."""

import keras
from keras import ops

from albert_tf.config import ModelConfig
from albert_tf.modeling.dropout import fold_in
from albert_tf.modeling.layers import (
    MASKED_LOGIT,
    Embeddings,
    FeedForward,
    SelfAttention,
    TransformerBlock,
    dense,
)

# For each sharing mode: does every layer get its own (attention, feed-forward)?
_OWN_PER_LAYER = {
    "all": (False, False),
    "attention": (False, True),
    "ffn": (True, False),
    "none": (True, True),
}


def sharing_plan(config: ModelConfig) -> list[tuple[int, int]]:
    """Returns (attention id, feed-forward id) of every block application.

    Layer i belongs to group i * groups // layers (in integers: the original's
    division of floats picks the wrong group for some depths), and applies
    inner_group_num blocks. Equal ids share weights. The list is in the order
    of application; ids count from 0 in the order of first use.
    """
    attention_own, feed_forward_own = _OWN_PER_LAYER[config.sharing]
    ids: tuple[dict, dict] = ({}, {})
    plan = []
    for layer in range(config.num_hidden_layers):
        group = layer * config.num_hidden_groups // config.num_hidden_layers
        for inner in range(config.inner_group_num):
            pair = []
            for known, own in zip(
                ids, (attention_own, feed_forward_own), strict=True
            ):
                key = (layer if own else group, inner)
                pair.append(known.setdefault(key, len(known)))
            plan.append(tuple(pair))
    return plan


def _name(base: str, number: int) -> str:
    return f"{base}_{number}" if number else base


class AlbertEncoder(keras.layers.Layer):
    """Embeddings, projection E to H, the blocks, and the pooler.

    With sharing "all" and one group a single TransformerBlock is called
    num_hidden_layers times. When E equals H there is no projection, as in the
    original.
    """

    def __init__(
        self, config: ModelConfig, name: str = "encoder", **kwargs: object
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.config = config
        policy = self.dtype_policy
        self.plan = sharing_plan(config)
        self.embeddings = Embeddings(config, dtype=policy)
        self.projection = None
        if config.embedding_size != config.hidden_size:
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
        self.pooler = dense(config, config.hidden_size, "pooler", policy)

    def build(self, input_shape: object = None) -> None:
        """Creates every weight."""
        hidden = (None, None, self.config.hidden_size)
        self.embeddings.build()
        if self.projection:
            self.projection.build((None, None, self.config.embedding_size))
        for block in self.blocks:
            block.build(hidden)
        self.pooler.build((None, self.config.hidden_size))
        self.built = True

    def call(
        self,
        input_ids: keras.KerasTensor,
        input_mask: keras.KerasTensor,
        segment_ids: keras.KerasTensor,
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns the hidden states of the last layer and the pooled vector.

        Args:
            input_ids: `[batch, seq]` integers.
            input_mask: `[batch, seq]`, 1 for tokens, 0 for padding.
            segment_ids: `[batch, seq]` integers.
            dropout_keys: `[batch]` uint32 or None (see ExampleDropout).
            training: whether dropout is on.

        Returns:
            `sequence_output` `[batch, seq, H]` and `pooled_output`
            `[batch, H]`, the tanh of a dense layer on the first position.
        """

        def keys_of(site: int) -> keras.KerasTensor | None:
            return None if dropout_keys is None else fold_in(dropout_keys, site)

        hidden = self.embeddings(
            input_ids, segment_ids, dropout_keys=keys_of(0), training=training
        )
        if self.projection:
            hidden = self.projection(hidden)
        mask = ops.cast(input_mask, self.compute_dtype)
        mask_logits = (1.0 - mask[:, None, None, :]) * MASKED_LOGIT
        for site, block in enumerate(self.applications, start=1):
            hidden = self.blocks[block](
                hidden,
                mask_logits,
                dropout_keys=keys_of(site),
                training=training,
            )
        pooled = ops.tanh(self.pooler(hidden[:, 0]))
        return {"sequence_output": hidden, "pooled_output": pooled}
