"""The interface of the libraries that are compared, and this project's side.

Every side does the same work: it trains on one batch of random tokens, and
computes the encoder's outputs of it: the pooled ones, as a classifier needs
them, and all of them.
"""

from collections.abc import Collection, Mapping
from typing import ClassVar

import numpy as np

from albert_tf.config import require
from albert_tf.jobs.workload import Workload
from albert_tf.modeling.accounting import encoder_flops, training_flops

# Method of a side: name in tables.
JOBS = {
    "train_step": "training",
    "forward": "forward",
    "states": "forward to every state",
}

Batch = Mapping[str, np.ndarray]


class Side:
    """A library's ALBERT at a workload, in one of the library's variants.

    Made of a workload, a batch and a variant; libraries are imported then.
    A method for each of JOBS: `train_step` makes one update and returns the
    loss before it; `forward` returns the pooled outputs `[batch, hidden]` and
    `states` every state `[batch, seq, hidden]`, both without dropout.

    Attributes:
        name: on the command line and in tables.
        packages: to be installed beside requirements.txt.
        precisions: that it is measured at.
        does: description by job, of what differs between libraries.
        flops: operations by job; without the jobs that are not comparable.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    precisions: ClassVar[Collection[str]] = ()
    does: dict[str, str]
    flops: dict[str, int]

    @classmethod
    def variants(cls, work: Workload) -> tuple[str, ...]:
        """Returns the ways to do the work, of which the fastest is reported."""
        return ("as set",)

    def describe(
        self,
        work: Workload,
        how: str,
        training: str,
        *,
        num_predictions: int,
        read_positions_only: bool = False,
    ) -> None:
        """Sets `does` and `flops`; for arguments see accounting.py."""
        self.does = {
            "train_step": f"{how}, {training}",
            "forward": how,
            "states": how,
        }
        config = work.model
        shape = {"batch_size": work.batch_size, "seq_length": work.seq_length}
        positions = {"read_positions_only": read_positions_only}
        self.flops = {
            "train_step": training_flops(
                config, **shape, **positions, num_predictions=num_predictions
            ),
            "forward": encoder_flops(config, **shape, **positions),
            "states": encoder_flops(config, **shape, read_positions_only=False),
        }


def check_precision(name: str, work: Workload, known: Collection[str]) -> None:
    """Raises UserError unless the precision is one of `known`."""
    precision = work.training.precision
    require(
        precision in known,
        f"precision={precision} is not measured for {name}; "
        f"{' and '.join(known)} are.",
    )


class OurSide(Side):
    """This project's Trainer and encoder."""

    name = "ours"

    def __init__(
        self, work: Workload, batch: Batch, variant: str = "as set"
    ) -> None:
        import tensorflow as tf

        from albert_tf.jobs.training_probe import make_probe

        training, optimizer = work.training, work.optimizer
        self._trainer = make_probe(work)
        self._batch = batch
        self._features = {n: tf.constant(v) for n, v in batch.items()}
        self.model = model = self._trainer.model
        # The pooler reads the first position, which is always computed.
        no_positions = tf.zeros((work.batch_size, 0), tf.int32)

        @tf.function(jit_compile=training.xla)
        def pooled(features: Batch) -> tf.Tensor:
            return model.encode(
                features, training=False, read_positions=no_positions
            )["pooled_output"]

        @tf.function(jit_compile=training.xla)
        def states(features: Batch) -> tf.Tensor:
            return model.encode(features, training=False)["sequence_output"]

        self._pooled, self._states = pooled, states
        how = training.precision + ", XLA" * training.xla
        self.describe(
            work,
            how,
            f"{optimizer.optimizer.upper()}, gradients clipped to "
            f"{optimizer.max_grad_norm:g}, the last block and the logits at "
            f"{work.num_predictions} positions of a sequence"
            + f", computed again for the gradient: {training.remat}"
            * (training.remat != "none"),
            num_predictions=work.num_predictions,
            read_positions_only=True,
        )
        self.does["forward"] += ", the last block at the first position"

    def train_step(self) -> float:
        return self.train_on(self._batch)

    def train_on(self, batch: Batch) -> float:
        """Makes one update on another batch and returns the loss before it."""
        return self._trainer.train_step(batch)["loss"]

    def forward(self) -> np.ndarray:
        return self._pooled(self._features).numpy()

    def states(self) -> np.ndarray:
        return self._states(self._features).numpy()
