"""KerasHub's ALBERT, on TensorFlow, at the work that is measured."""

import numpy as np

from albert_tf.jobs.workload import Workload
from bin.benchmarking.side import Batch, Side

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


class KerasHubSide(Side):
    """AlbertBackbone with two heads, and AdamW.

    KerasHub has no sentence-order head: a dense layer on the pooled output
    stands for it.
    """

    name = "keras_hub"
    packages = ("keras_hub",)
    precisions = _POLICIES

    @classmethod
    def variants(cls, work: Workload) -> tuple[str, ...]:
        return ("graph", "XLA")

    def __init__(self, work: Workload, batch: Batch, variant: str) -> None:
        import keras
        import keras_hub
        import tensorflow as tf

        from albert_tf.interchange.keras_hub import make_backbone

        keras.utils.set_random_seed(work.training.seed)
        config, policy = work.model, _POLICIES[work.training.precision]
        backbone = make_backbone(config, policy)
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
        # What fit() calls. Keras itself does not compile with XLA where
        # operations are deterministic, as in this project's programs.
        compiled = {"jit_compile": variant == "XLA"}
        self._train = tf.function(self._model.train_step, **compiled)
        self._encode = tf.function(
            lambda inputs: backbone(inputs, training=False), **compiled
        )
        tensors = {name: tf.constant(value) for name, value in batch.items()}
        self._inputs = {
            "token_ids": tensors["input_ids"],
            "padding_mask": tensors["input_mask"],
            "segment_ids": tensors["segment_ids"],
        }
        masks = {"mask_positions": tensors["masked_lm_positions"]}
        self._features = self._inputs | masks
        self._labels = {
            "masked_lm": tensors["masked_lm_ids"],
            "sentence_order": tensors["sentence_order_labels"],
        }
        self.describe(
            work,
            f"{policy}, {variant}",
            "AdamW, gradients clipped to 1, logits at "
            f"{work.num_predictions} positions of a sequence, sentence order "
            "by a dense layer of ours",
            num_predictions=work.num_predictions,
        )

    def train_step(self) -> float:
        # The loss returned is the mean since the last reset.
        self._model.reset_metrics()
        return float(self._train((self._features, self._labels))["loss"])

    def forward(self) -> np.ndarray:
        return self._encode(self._inputs)["pooled_output"].numpy()

    def states(self) -> np.ndarray:
        return self._encode(self._inputs)["sequence_output"].numpy()
