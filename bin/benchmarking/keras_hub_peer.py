"""KerasHub's ALBERT, on TensorFlow, at the work that is measured."""

from collections.abc import Mapping

import numpy as np

from albert_tf.config import UserError, override
from albert_tf.jobs.workload import Workload
from albert_tf.modeling.accounting import encoder_flops, training_flops

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
# Whether Keras compiles with XLA.
_COMPILED = {"graph": False, "XLA": True}
# What its ALBERT has no setting for.
_FIXED = {"sharing": "all", "hidden_act": "gelu", "layer_norm_eps": 1e-12}


def variants(work: Workload) -> tuple[str, ...]:
    """Returns the ways to do the work; what is fastest is to be taken.

    Raises:
        UserError: for what KerasHub has no model for.
    """
    config = work.model
    fixed = _FIXED | {
        "attention_probs_dropout_prob": config.hidden_dropout_prob
    }
    for name, value in fixed.items():
        if getattr(config, name) != value:
            raise UserError(
                f"{name}={getattr(config, name)}: the ALBERT of KerasHub "
                f"always takes {value}; choose another --preset."
            )
    if config.num_hidden_layers % config.num_hidden_groups:
        raise UserError(
            f"num_hidden_groups={config.num_hidden_groups}: the ALBERT of "
            "KerasHub has groups of one size, which do not divide "
            f"num_hidden_layers={config.num_hidden_layers}."
        )
    precision = work.training.precision
    if precision not in _POLICIES:
        raise UserError(
            f"precision={precision} is not compared with keras_hub; "
            f"{' and '.join(_POLICIES)} are."
        )
    return tuple(_COMPILED)


class KerasHubSide:
    """An AlbertBackbone with two heads and AdamW; see workload.Side.

    KerasHub has no sentence order: a dense layer on the pooled output is it.
    """

    def __init__(
        self, work: Workload, batch: Mapping[str, np.ndarray], variant: str
    ) -> None:
        import keras
        import keras_hub
        import tensorflow as tf

        keras.utils.set_random_seed(work.training.seed)
        config = work.model
        compiled = _COMPILED[variant]
        policy = _POLICIES[work.training.precision]
        backbone = keras_hub.models.AlbertBackbone(
            vocabulary_size=config.vocab_size,
            num_layers=config.num_hidden_layers,
            num_heads=config.num_attention_heads,
            embedding_dim=config.embedding_size,
            hidden_dim=config.hidden_size,
            intermediate_dim=config.intermediate_size,
            num_groups=config.num_hidden_groups,
            num_inner_repetitions=config.inner_group_num,
            dropout=config.hidden_dropout_prob,
            max_sequence_length=config.max_position_embeddings,
            num_segments=config.type_vocab_size,
            dtype=policy,
        )
        positions = keras.Input((None,), dtype="int32", name="mask_positions")
        encoded = backbone(backbone.input)
        masked_lm = keras_hub.layers.MaskedLMHead(
            vocabulary_size=config.vocab_size,
            token_embedding=backbone.token_embedding,
            intermediate_activation=lambda x: keras.activations.gelu(
                x, approximate=True
            ),
            dtype=policy,
        )(encoded["sequence_output"], positions)
        order = keras.layers.Dense(2, dtype=policy)(encoded["pooled_output"])
        self._model = keras.Model(
            {**backbone.input, "mask_positions": positions},
            {"masked_lm": masked_lm, "sentence_order": order},
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self._model.compile(
            keras.optimizers.AdamW(1e-4, global_clipnorm=1.0),
            loss={"masked_lm": loss, "sentence_order": loss},
        )
        self._model.optimizer.build(self._model.trainable_variables)
        # What fit() calls. By itself Keras would not compile it where
        # operations are to be deterministic, as in this project's programs.
        self._train = tf.function(self._model.train_step, jit_compile=compiled)
        self._inputs = {
            "token_ids": tf.constant(batch["input_ids"]),
            "padding_mask": tf.constant(batch["input_mask"]),
            "segment_ids": tf.constant(batch["segment_ids"]),
        }
        self._features = {
            **self._inputs,
            "mask_positions": tf.constant(batch["masked_lm_positions"]),
        }
        self._labels = {
            "masked_lm": tf.constant(batch["masked_lm_ids"]),
            "sentence_order": tf.constant(batch["sentence_order_labels"]),
        }
        self._encode = tf.function(
            lambda inputs: backbone(inputs, training=False),
            jit_compile=compiled,
        )
        # It projects even where the widths are equal.
        arithmetic = override(config, {"always_project_embeddings": True})
        every_state = encoder_flops(
            arithmetic,
            batch_size=work.batch_size,
            seq_length=work.seq_length,
            read_positions_only=False,
        )
        self.flops = {
            "train_step": training_flops(
                arithmetic, **work.shape, read_positions_only=False
            ),
            **dict.fromkeys(("forward", "states"), every_state),
        }
        how = f"{policy}, {variant}"
        self.does = {
            "train_step": f"{how}, AdamW, gradients clipped to 1, logits at "
            f"{work.num_predictions} positions of a sequence, sentence order "
            "by a dense layer of ours",
            **dict.fromkeys(("forward", "states"), how),
        }

    def train_step(self) -> float:
        """Makes one update and returns the loss before it."""
        # What is returned is the mean since the last reset.
        self._model.reset_metrics()
        return float(self._train((self._features, self._labels))["loss"])

    def forward(self) -> np.ndarray:
        """Computes every state; returns the pooled outputs `[batch, H]`."""
        return self._encode(self._inputs)["pooled_output"].numpy()

    def states(self) -> np.ndarray:
        """Returns every state `[batch, seq, H]`."""
        return self._encode(self._inputs)["sequence_output"].numpy()
