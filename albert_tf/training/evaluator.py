"""Evaluation and prediction steps over the replicas of a model."""

import functools
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.cluster.distribution import (
    distribute_rows,
    local_rows,
    worker_hosts,
)
from albert_tf.inputs.input_pipeline import Batch
from albert_tf.inputs.prefetch import prefetch
from albert_tf.inputs.source_schedule import Source
from albert_tf.training.running_statistics import RunningMeans
from albert_tf.training.trace_per_shape import TracePerShape
from albert_tf.training.training_loss import (
    TrainingLoss,
    WeightedSums,
    as_float32,
)

Tensors = dict[str, tf.Tensor]


def accelerator() -> str:
    """Returns "TPU", "GPU" or, without either, ""."""
    kinds = ("TPU", "GPU")
    return next((k for k in kinds if tf.config.list_logical_devices(k)), "")


def on_one_cpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a single CPU computes everything.

    Then splitting a batch by length pays. Replicas would wait for one another,
    and small parts slow accelerators down.
    """
    return strategy.num_replicas_in_sync == 1 and not accelerator()


class Evaluator:
    """A model and its replicas; made in the strategy's scope.

    `evaluate` raises InputStalled where reading a batch takes longer than
    `data_timeout_secs`.
    """

    data_timeout_secs = math.inf

    def __init__(
        self,
        model: keras.Model,
        training_loss: TrainingLoss,
        *,
        strategy: tf.distribute.Strategy,
    ) -> None:
        self.model = model
        self.training_loss = training_loss
        self.strategy = strategy
        self._step = TracePerShape(self._distributed_step)

    def num_devices(self) -> int:
        """Returns the number of devices; the CPUs of a machine are one."""
        if accelerator():
            return self.strategy.num_replicas_in_sync
        return len(set(worker_hosts(self.strategy)))

    def describe_devices(self) -> str:
        """Returns a description, such as `8 replicas on GPU`."""
        number = self.strategy.num_replicas_in_sync
        replicas = "1 replica" if number == 1 else f"{number} replicas"
        return f"{replicas} on {accelerator() or 'CPU'}"

    def evaluate(
        self,
        batches: Source,
        collect: Callable[[int, dict[str, np.ndarray]], None],
        *,
        max_steps: int = 0,
        num_applications: int | None = None,
        with_outputs: bool = False,
    ) -> dict[str, float]:
        """Returns the means of `evaluation_step` over batches; 0 steps: all.

        `collect` takes the number and the arrays of each step.
        """
        rows = local_rows(batches.batch_size, self.strategy)
        num_steps = min(batches.num_steps, max_steps or batches.num_steps)
        means = RunningMeans()
        for step, batch in prefetch(
            lambda step: (step, batches.batch(step, rows)),
            range(num_steps),
            timeout=self.data_timeout_secs,
        ):
            sums, arrays = self.evaluation_step(
                batch, num_applications, with_outputs=with_outputs
            )
            means.add(sums)
            collect(step, arrays)
        return means.means()

    def evaluation_step(
        self,
        batch: Batch,
        num_applications: int | None = None,
        *,
        with_outputs: bool = False,
    ) -> tuple[dict[str, tuple[float, float]], dict[str, np.ndarray]]:
        """Returns sum and weight of each metric over the global batch.

        The arrays are the label counts `[classes]`, by the name of the
        baseline. Or `with_outputs` those of the heads, `[batch, ...]` with the
        padding of the replicas' batches, on every worker; the sums are then
        those of the losses.
        """
        results = self._step(
            distribute_rows(self.strategy, batch),
            shape=batch["input_ids"].shape,
            num_applications=num_applications,
            with_outputs=with_outputs,
        )
        return tf.nest.map_structure(lambda value: value.numpy(), results)

    def outputs(
        self, batch: Batch, num_applications: int | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the heads' outputs for a batch, computed on one device."""
        tensors = {name: tf.constant(value) for name, value in batch.items()}
        outputs = self._forward(tensors, num_applications)
        return {name: value.numpy() for name, value in outputs.items()}

    def _forward(self, features: dict, num_applications: int | None) -> Tensors:
        """Returns the heads' outputs, without dropout."""
        outputs: Tensors = self.model(
            features,
            training=False,
            heads_only=True,
            num_applications=num_applications,
        )
        return outputs

    def _distributed_step(
        self, batch: dict, *, num_applications: int | None, with_outputs: bool
    ) -> tuple[WeightedSums, Tensors]:
        step = functools.partial(
            self._evaluate_replica,
            num_applications=num_applications,
            with_outputs=with_outputs,
        )
        sums, arrays = self.strategy.run(step, args=(batch,))
        if with_outputs and self.strategy.num_replicas_in_sync > 1:
            arrays = {
                name: self.strategy.gather(value, axis=0)
                for name, value in arrays.items()
            }
        return self._first((sums, arrays))

    def _evaluate_replica(
        self,
        features: dict,
        num_applications: int | None,
        with_outputs: bool,
    ) -> tuple[WeightedSums, Tensors]:
        """Returns sums, and the heads' outputs or the label counts."""
        outputs = self._forward(features, num_applications)
        sums = self.training_loss.losses(outputs, features)
        if with_outputs:
            return reduced_scalars(as_float32(sums)), outputs
        sums |= self.training_loss.metrics(outputs, features)
        counts = self.training_loss.label_counts(outputs, features)
        return reduced_scalars(as_float32(sums)), all_reduce(counts)

    def _first(self, reduced: Any) -> Any:
        """Returns one replica's values, which are equal on all replicas."""
        return tf.nest.map_structure(
            lambda value: self.strategy.experimental_local_results(value)[0],
            reduced,
        )


def all_reduce(values: Any) -> Any:
    """Returns nested tensors, summed over the replicas."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def reduced_scalars(values: Any) -> Any:
    """Returns nested float32 scalars, summed over the replicas at once."""
    total = all_reduce(tf.stack(tf.nest.flatten(values)))
    return tf.nest.pack_sequence_as(values, tf.unstack(total))
