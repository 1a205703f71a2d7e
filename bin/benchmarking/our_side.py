"""This project at the work that is measured: its Trainer, its encoder."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from albert_tf.inputs.input_pipeline import Batch
from albert_tf.jobs.training_probe import make_probe, probe_batch
from albert_tf.jobs.workload import Workload
from albert_tf.modeling.accounting import encoder_flops, training_flops


def our_training_flops(work: Workload) -> int:
    """Returns the operations of a step of ours.

    The trainer leaves the last block to the states that heads read.
    """
    return training_flops(work.model, **work.shape, read_positions_only=True)


class OurSide:
    """A Trainer and its model; see workload.Side."""

    def __init__(self, work: Workload, batch: Mapping[str, np.ndarray]) -> None:
        optimizer = work.optimizer
        training = work.training
        self._trainer = make_probe(work)
        self.model = self._trainer.model
        self._batch = probe_batch(batch)
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
