"""The training step: gradients, clipping, update, over all replicas.

A custom loop and not `Model.fit`: under MirroredStrategy fit cannot accumulate
gradients, run several steps per call or compile (Keras 3.15), clips before
the reduction and weights replicas equally whatever they hold.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from albert_tf.cluster.distribution import distribute_rows, local_rows
from albert_tf.config import OptimizerConfig, TrainingConfig
from albert_tf.inputs.input_pipeline import Batch
from albert_tf.modeling.attention import training_form
from albert_tf.modeling.dropout import example_keys
from albert_tf.optim.moving_average import MovingAverage
from albert_tf.optim.optimizers import build_optimizer
from albert_tf.optim.schedules import learning_rate_at
from albert_tf.optim.variable_rules import rate_multipliers, trained_variables
from albert_tf.training.evaluator import (
    Evaluator,
    all_reduce,
    on_one_cpu,
    reduced_scalars,
)
from albert_tf.training.gradients import GradientComputation
from albert_tf.training.loss_scale import make_loss_scale
from albert_tf.training.trace_per_shape import TracePerShape
from albert_tf.training.training_loss import TrainingLoss, WeightedSums
from albert_tf.training.variable_update import VariableUpdate

DTYPE_POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}


def _per_row(batch: Batch) -> Batch:
    """Returns the features that have a value for each row."""
    return {n: value for n, value in batch.items() if n != "part_widths"}


class Controls(NamedTuple):
    """What the loop decides about a step, see `train_steps`."""

    loss_limit: tf.Tensor
    stop_requested: tf.Tensor


class StepResult(NamedTuple):
    """What a training step returns: tensors in its graph, else floats.

    Attributes:
        sums: of every loss and metric, over the global batch.
        loss: the sum of the mean losses (without `loss_weight`, so that runs
            compare).
        gradient_norm: before clipping.
        learning_rate: of the update.
        skipped: 1 if no weight and no moment was changed; the step counts.
        nonfinite: 1 if that was for a value that is not finite (and no mere
            overflow that a smaller loss scale will cure).
        stop_requests: the number of replicas whose worker is to stop.
        loss_scale: 1 except under float16.
    """

    sums: WeightedSums
    loss: float
    gradient_norm: float
    learning_rate: float
    skipped: float
    nonfinite: float
    stop_requests: float
    loss_scale: float


class Trainer(Evaluator):
    """A model, its optimizer and their replicas."""

    def __init__(
        self,
        build_model: Callable[..., keras.Model],
        training_loss: TrainingLoss,
        strategy: tf.distribute.Strategy,
        optimizer: OptimizerConfig,
        training: TrainingConfig,
    ) -> None:
        """Prepares the steps of a new model.

        Args:
            build_model: called with the arguments `remat`, `attention` and
                `dtype`.
            training_loss: what is minimised.
            strategy: has the replicas.
            optimizer: its settings.
            training: the other settings of training.

        Raises:
            UserError: for an unknown optimizer, or an invalid pattern of
                `freeze` or of an exclusion.
        """
        self._optimizer_config = optimizer
        self._training_config = training
        self._average: MovingAverage | None = None
        with strategy.scope():
            keras.utils.set_random_seed(training.seed)
            model = build_model(
                remat=training.remat,
                attention=training.attention,
                dtype=DTYPE_POLICIES[training.precision],
            )
            # Unsuitable forms fail here, before the first step is compiled.
            training_form(training.attention, model.config, model.compute_dtype)
            super().__init__(model, training_loss, strategy=strategy)
            self._trained = trained_variables(model, optimizer.freeze)
            self.optimizer = build_optimizer(optimizer, model.compute_dtype)
            self.optimizer.build(self._trained)
            self._loss_scale = make_loss_scale(training.precision)
            if optimizer.ema_decay:
                self._average = MovingAverage(
                    self._trained, optimizer.ema_decay
                )
        self._local_gradients = GradientComputation(
            model, training_loss, self._trained, xla=training.xla
        )
        self._update = VariableUpdate(
            self.optimizer,
            self._trained,
            rate_multipliers(model, optimizer.layer_decay),
            self._average,
        )
        # With several replicas the gradients are all-reduced between compiled
        # parts, so that the whole step cannot be one XLA program.
        self._xla = training.xla and strategy.num_replicas_in_sync == 1
        self._compiled_step = TracePerShape(self.graph_step, xla=self._xla)
        self._compiled_loop = TracePerShape(self._distributed_train_loop)

    def rows(self, batch_size: int) -> range:
        """Returns the rows of a global batch that this process reads.

        Rows from batch_size on are padding: the replicas' batches have one
        size, a multiple of the micro-batch.
        """
        replicas = self.strategy.num_replicas_in_sync
        replica_batch = -(-batch_size // replicas)
        micro_batch = self._micro_batch_size(replica_batch)
        padded_batch = -(-replica_batch // micro_batch) * micro_batch
        return local_rows(replicas * padded_batch, self.strategy)

    def part_widths(self, batch: Batch) -> tuple[int, ...]:
        """Returns the widths at which equal parts of a batch are computed.

        All rows are one part, as wide as the batch, elsewhere than on one CPU,
        and where micro-batches do not divide the parts.
        """
        whole = (batch["input_ids"].shape[-1],)
        if not on_one_cpu(self.strategy):
            return whole
        widths = tuple(map(int, batch.get("part_widths", whole)))
        num_rows = len(batch["example_numbers"])
        part_size = num_rows // len(widths)
        micro_batch = min(self._micro_batch_size(num_rows), part_size)
        return whole if part_size % micro_batch else widths

    def _micro_batch_size(self, replica_batch: int) -> int:
        size = self._training_config.micro_batch_size or replica_batch
        return min(size, replica_batch)

    @property
    def trains_all(self) -> bool:
        """Whether no weight is frozen."""
        return len(self._trained) == len(self.model.weights)

    def variables(self) -> dict[str, tf.Variable]:
        """Returns every variable that a checkpoint must hold, by its path."""
        found: dict[str, tf.Variable] = {}
        # The states of dropout's seed generators are left out: every mask
        # comes from a key, and their paths count up within a process.
        for variable in (
            *self.model.trainable_variables,
            *self.optimizer.variables,
        ):
            if variable.path in found:
                raise AssertionError(f"two variables at {variable.path}")
            found[variable.path] = variable.value
        for path, average in self._update.averages().items():
            found[f"average/{path}"] = average
        return found | self._loss_scale.variables()

    def trust_ratios(self) -> dict[str, float]:
        """Returns the trust ratios in the last step, by path.

        Variables that have none, or that no loss reaches, are left out.
        """
        if not hasattr(self.optimizer, "trust_ratios"):
            return {}
        ratios: dict[str, float] = self.optimizer.trust_ratios()
        return ratios

    def learning_rate(self, step: int, num_train_steps: int) -> float:
        """Returns the rate of the update after `step`, in a run so long."""
        rate = learning_rate_at(step, self._optimizer_config, num_train_steps)
        return float(rate)

    def weight_norm(self) -> float:
        """Returns the norm of all weights together."""
        squares = (
            np.sum(np.square(keras.ops.convert_to_numpy(v), dtype=np.float64))
            for v in self.model.trainable_variables
        )
        return float(np.sqrt(sum(squares)))

    def averaged_weights(self) -> contextlib.AbstractContextManager:
        """Returns a context with the moving averages in the model, if any."""
        if self._average:
            return self._average.in_place()
        return contextlib.nullcontext()

    def train_steps(
        self,
        batches: Sequence[Batch],
        num_applications: int | None = None,
        *,
        loss_limit: float = math.inf,
        stop_requested: bool = False,
    ) -> list[StepResult]:
        """Runs one step for each batch.

        A step whose loss or gradient is not finite, or whose loss exceeds the
        limit, counts but changes no weight and no moment. Steps in one loop
        (`steps_per_loop` above 1) compute all rows at the batch's full width.

        Args:
            batches: rows `rows()` of the global batches, with
                `example_numbers` `[rows]`.
            num_applications: of the model's blocks; None: all.
            loss_limit: the largest loss of a step that changes weights.
            stop_requested: whether this worker is to stop.
        """
        controls = Controls(
            loss_limit=tf.constant(loss_limit, tf.float32),
            stop_requested=tf.constant(float(stop_requested)),
        )
        if self._training_config.steps_per_loop == 1:
            return [
                self._run_step(batch, controls, num_applications)
                for batch in batches
            ]
        return self._run_loop(batches, controls, num_applications)

    def _run_step(
        self,
        batch: Batch,
        controls: Controls,
        num_applications: int | None,
    ) -> StepResult:
        """Returns the result of one step, in parts of the batch's widths."""
        result = self._compiled_step(
            distribute_rows(self.strategy, _per_row(batch)),
            controls,
            shape=batch["input_ids"].shape,
            num_applications=num_applications,
            part_widths=self.part_widths(batch),
        )
        return tf.nest.map_structure(float, result)

    def _run_loop(
        self,
        batches: Sequence[Batch],
        controls: Controls,
        num_applications: int | None,
    ) -> list[StepResult]:
        """Returns the results of the steps of one compiled loop."""
        stack = self._stack(batches)
        columns = self._compiled_loop(
            distribute_rows(self.strategy, stack, axis=1),
            tf.constant(len(batches)),
            controls,
            shape=stack["input_ids"].shape,
            num_applications=num_applications,
        )
        columns = tf.nest.map_structure(lambda column: column.numpy(), columns)
        return [
            tf.nest.map_structure(lambda column, n=n: float(column[n]), columns)
            for n in range(len(batches))
        ]

    def _stack(self, batches: Sequence[Batch]) -> Batch:
        """Returns the batches along a new first axis, of one length always.

        Another length would be another trace, with sums in another order.
        """
        missing = self._training_config.steps_per_loop - len(batches)
        padded = [*batches, *[batches[-1]] * missing]
        return {
            name: np.stack([batch[name] for batch in padded])
            for name in _per_row(batches[0])
        }

    # Compiled functions over all replicas.

    def graph_step(
        self,
        batch: dict,
        controls: Controls,
        num_applications: int | None = None,
        part_widths: Sequence[int] = (),
    ) -> StepResult:
        """Returns the result of a step in a graph, see `train_steps`."""
        step = functools.partial(
            self._replica_train_step,
            num_applications=num_applications,
            part_widths=part_widths,
        )
        return self._first(self.strategy.run(step, args=(batch, controls)))

    def _distributed_train_loop(
        self,
        stack: dict,
        num_steps: tf.Tensor,
        controls: Controls,
        num_applications: int | None,
    ) -> StepResult:
        """Returns the results `[num_steps]` of the first batches' steps."""

        def run(number: tf.Tensor) -> StepResult:
            batch = self.strategy.run(
                lambda stack: {name: v[number] for name, v in stack.items()},
                args=(stack,),
            )
            return self.graph_step(batch, controls, num_applications)

        # The step is traced before the loop, which has to know its result.
        step = tf.function(
            run, autograph=False, jit_compile=self._xla or None
        ).get_concrete_function(tf.TensorSpec([], tf.int32))
        return tf.map_fn(
            step,
            tf.range(num_steps),
            parallel_iterations=1,
            fn_output_signature=tf.nest.map_structure(
                tf.TensorSpec.from_tensor, step.structured_outputs
            ),
        )

    # Functions of one replica.

    def _replica_train_step(
        self,
        features: dict,
        controls: Controls,
        num_applications: int | None,
        part_widths: Sequence[int],
    ) -> StepResult:
        """Takes a step on a replica's batch, together with the others.

        Label weights are reduced before the gradient is taken, so that a label
        counts the same on every replica, and the norm of gradients is that
        of the global batch. A loss that is finite with a gradient that is not
        may be cured by a smaller scale.
        """
        label_weights = reduced_scalars(
            self.training_loss.label_weights(features)
        )
        scale = self._loss_scale.value()
        sums, gradients = self._reduced_gradients(
            features,
            self.training_loss.factors(label_weights, scale),
            num_applications,
            part_widths,
        )
        stop_requests, sums = reduced_scalars((controls.stop_requested, sums))
        loss = self.training_loss.reported(sums, label_weights)
        norm = tf.linalg.global_norm(list(gradients.values()))
        finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)
        usable = finite & (loss <= controls.loss_limit)
        overflow = tf.math.is_finite(loss) & (scale > 1.0)
        result = StepResult(
            sums,
            loss=loss,
            gradient_norm=norm,
            learning_rate=self._learning_rate(),
            skipped=tf.cast(~usable, tf.float32),
            nonfinite=tf.cast(~(finite | overflow), tf.float32),
            stop_requests=stop_requests,
            loss_scale=tf.convert_to_tensor(scale),
        )
        gradients = self._clipped(gradients, norm)
        self._update.apply(gradients, result.learning_rate, usable)
        self._loss_scale.update(finite)
        return result

    def _learning_rate(self) -> tf.Tensor:
        """Returns the rate of the step that is being taken."""
        return learning_rate_at(
            self.optimizer.iterations,
            self._optimizer_config,
            self._training_config.num_train_steps,
        )

    def _reduced_gradients(
        self,
        features: dict,
        factors: dict[str, tf.Tensor],
        num_applications: int | None,
        part_widths: Sequence[int],
    ) -> tuple[WeightedSums, dict[str, tf.Tensor]]:
        """Returns the replica's sums, and the global batch's gradients.

        They are by path, of the variables that a loss reaches. Others (the
        pooler and the sentence head, where segments have no label, or their
        loss no weight) are not updated, as in google-research/albert: with a
        gradient of 0 LAMB's update is the weight decay alone, which the trust
        ratio scales up to the learning rate times the weights.
        """
        features = dict(features)
        numbers = features.pop("example_numbers")
        sums, local = self._local_gradients.over_rows(
            features,
            example_keys(
                self._training_config.seed, self.optimizer.iterations, numbers
            ),
            factors,
            micro_batch_size=self._micro_batch_size(numbers.shape[0]),
            num_applications=num_applications,
            part_widths=part_widths,
        )
        # In the order of the sum in their norm.
        reached = {
            v.path: local[v.path] for v in self._trained if v.path in local
        }
        return sums, self._loss_scale.unscaled(all_reduce(reached))

    def _clipped(
        self, gradients: dict[str, tf.Tensor], norm: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        if not self._optimizer_config.max_grad_norm:
            return gradients
        clipped, _ = tf.clip_by_global_norm(
            list(gradients.values()),
            self._optimizer_config.max_grad_norm,
            use_norm=norm,
        )
        return dict(zip(gradients, clipped, strict=True))
