"""This project at the work that is measured: its Trainer, its encoder."""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import RuntimeConfig, override
from albert_tf.modeling.arithmetic import encoder_flops, training_flops
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.training.distribution import make_strategy
from albert_tf.training.input_pipeline import Batch
from albert_tf.training.objectives import pretraining_objective
from albert_tf.training.targets import SENTENCE_TARGETS
from albert_tf.training.trainer import DTYPE_POLICIES, Trainer
from albert_tf.training.workload import Workload


def our_training_flops(work: Workload) -> int:
    """Returns the operations of a step of ours.

    The trainer leaves the last block to the states that heads read.
    """
    return training_flops(work.model, **work.shape, read_positions_only=True)


class OurSide:
    """A Trainer and its model; see workload.Side."""

    def __init__(self, work: Workload, batch: Mapping[str, np.ndarray]) -> None:
        optimizer = work.optimizer
        training = override(
            work.training, {"train_batch_size": work.batch_size}
        )
        strategy = make_strategy(RuntimeConfig())
        with strategy.scope():
            keras.utils.set_random_seed(training.seed)
            self.model = AlbertForPretraining(
                work.model,
                remat=training.remat,
                dtype=DTYPE_POLICIES[training.precision],
            )
            self._trainer = Trainer(
                self.model,
                pretraining_objective(SENTENCE_TARGETS["sop"]),
                strategy=strategy,
                optimizer_config=optimizer,
                training_config=training,
            )
        self._batch = {
            **batch,
            "example_numbers": np.arange(work.batch_size, dtype=np.int32),
        }
        self._features = {n: tf.constant(v) for n, v in batch.items()}
        # Beside the first position, which the pooler reads.
        nothing = tf.zeros((work.batch_size, 0), tf.int32)
        self._pooled = tf.function(
            lambda features: self.model.encode(
                features, training=False, read_positions=nothing
            )["pooled_output"],
            jit_compile=training.xla,
        )
        self._states = tf.function(
            lambda features: self.model.encode(features, training=False)[
                "sequence_output"
            ],
            jit_compile=training.xla,
        )
        shape = {"batch_size": work.batch_size, "seq_length": work.seq_length}
        self.flops = {
            "train_step": our_training_flops(work),
            "forward": encoder_flops(
                work.model, **shape, read_positions_only=True
            ),
            "states": encoder_flops(
                work.model, **shape, read_positions_only=False
            ),
        }
        how = training.precision + ", XLA" * training.xla
        self.does = {
            "train_step": f"{how}, {optimizer.optimizer.upper()}, gradients "
            f"clipped to {optimizer.max_grad_norm:g}, the last block and the "
            f"logits at {work.num_predictions} positions of a sequence"
            + f", computed again for the gradient: {training.remat}"
            * (training.remat != "none"),
            "forward": f"{how}, the last block at the first position",
            "states": how,
        }

    def train_step(self) -> float:
        """Makes one update and returns the loss before it."""
        return self.train_on(self._batch)

    def train_on(self, batch: Batch) -> float:
        """Makes one update on another batch and returns the loss before it."""
        return self._trainer.train_step(batch)["loss"]

    def forward(self) -> np.ndarray:
        """Returns the pooled outputs `[batch, H]`."""
        return self._pooled(self._features).numpy()

    def states(self) -> np.ndarray:
        """Returns every state `[batch, seq, H]`."""
        return self._states(self._features).numpy()
