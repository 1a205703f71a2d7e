"""The training step: forward, backward, all-reduce, clipping, update.

A custom loop and not `Model.fit`: under MirroredStrategy fit cannot accumulate
gradients, run several steps per call or compile (Keras 3.15), clips before
the reduction and weights replicas equally whatever they hold.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from albert_tf.cluster.distribution import distribute_rows, local_rows
from albert_tf.config import OptimizerConfig, TrainingConfig
from albert_tf.inputs.input_pipeline import Batch
from albert_tf.modeling.dropout import example_keys
from albert_tf.optim.moving_average import MovingAverage
from albert_tf.optim.optimizers import build_optimizer
from albert_tf.optim.schedules import learning_rate_at
from albert_tf.optim.variable_rules import rate_multipliers, trained_variables
from albert_tf.training.evaluator import (
    Evaluator,
    accelerator,
    all_reduce,
    reduced_scalars,
)
from albert_tf.training.gradients import GradientComputation, TracePerShape
from albert_tf.training.loss_scale import LossScale
from albert_tf.training.objectives import Objective

DTYPE_POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}


def _per_row(batch: Batch) -> Batch:
    """Returns the features that have a value for each row."""
    return {n: value for n, value in batch.items() if n != "part_widths"}


class Trainer(Evaluator):
    """A model, its optimizer and their replicas."""

    def __init__(
        self,
        build_model: Callable[..., keras.Model],
        objective: Objective,
        strategy: tf.distribute.Strategy,
        optimizer: OptimizerConfig,
        training: TrainingConfig,
        packed_lengths: Mapping[int, np.ndarray] | None = None,
    ) -> None:
        """Prepares the steps of a new model, `build_model(remat=, dtype=)`.

        See Evaluator and GradientComputation.

        Raises:
            UserError: for an unknown optimizer, or an invalid pattern of
                `freeze` or of an exclusion.
        """
        self._optimizer_config = optimizer
        self._training_config = training
        self._updated_paths: set[str] = set()
        self._loss_scale: LossScale | None = None
        self._average: MovingAverage | None = None
        with strategy.scope():
            keras.utils.set_random_seed(training.seed)
            model = build_model(
                remat=training.remat, dtype=DTYPE_POLICIES[training.precision]
            )
            super().__init__(model, objective, strategy=strategy)
            self._trained = trained_variables(model, optimizer.freeze)
            self.optimizer = build_optimizer(optimizer, model.compute_dtype)
            self.optimizer.build(self._trained)
            if training.precision == "float16":
                self._loss_scale = LossScale()
            if optimizer.ema_decay:
                self._average = MovingAverage(
                    self._trained, optimizer.ema_decay
                )
        self._multipliers = rate_multipliers(model, optimizer.layer_decay)
        self._compute_gradients = GradientComputation(
            model,
            objective,
            self._trained,
            xla=training.xla,
            packed_lengths=packed_lengths,
        )
        self._train = TracePerShape(self._train_step)
        self._train_many = TracePerShape(self._train_loop)

    def rows(self, batch_size: int) -> range:
        """Returns the rows of a global batch that this process reads.

        Rows from batch_size on are padding: the replicas' shares have one
        size, a multiple of the micro-batch.
        """
        replicas = self.strategy.num_replicas_in_sync
        share = -(-batch_size // replicas)
        micro = self._micro_batch(share)
        return local_rows(
            replicas * (-(-share // micro) * micro), self.strategy
        )

    def part_widths(self, batch: Batch) -> tuple[int, ...]:
        """Returns the widths at which equal parts of a batch are computed.

        Only on one CPU, which takes as long as there are tokens. Replicas
        would wait for one another, and small parts slow accelerators down:
        there all rows are one part, as wide as the batch.
        """
        whole = (batch["input_ids"].shape[-1],)
        if self.strategy.num_replicas_in_sync > 1 or accelerator():
            return whole
        widths = tuple(map(int, batch.get("part_widths", whole)))
        rows = len(batch["example_numbers"])
        share = rows // len(widths)
        return whole if share % min(self._micro_batch(rows), share) else widths

    def _micro_batch(self, share: int) -> int:
        return min(self._training_config.micro_batch_size or share, share)

    def variables(self) -> dict[str, tf.Variable]:
        """Returns every variable that a checkpoint must hold, by its path."""
        found: dict[str, tf.Variable] = {}
        # Without the states of dropout's seed generators: every mask comes
        # from a key, and their paths count up within a process.
        for variable in (
            *self.model.trainable_variables,
            *self.optimizer.variables,
        ):
            if variable.path in found:
                raise AssertionError(f"two variables at {variable.path}")
            found[variable.path] = variable.value
        for path, average in self._averages().items():
            found[f"average/{path}"] = average
        if self._loss_scale:
            found.update(self._loss_scale.variables())
        return found

    def _averages(self) -> dict[str, tf.Variable]:
        if not self._average:
            return {}
        pairs = zip(self._trained, self._average.averages, strict=True)
        return {variable.path: average.value for variable, average in pairs}

    def trust_ratios(self) -> dict[str, float]:
        """Returns the trust ratios in the last step, by path.

        Of variables that have one and that a loss reaches.
        """
        if not hasattr(self.optimizer, "trust_ratios"):
            return {}
        ratios: dict[str, float] = self.optimizer.trust_ratios()
        return {
            path: ratio
            for path, ratio in ratios.items()
            if path in self._updated_paths
        }

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

    def train_step(self, batch: Batch) -> dict[str, float]:
        """Returns the scalars of one step (see `train_steps`)."""
        (results,) = self.train_steps([batch])
        return results

    def train_steps(
        self,
        batches: Sequence[Batch],
        num_applications: int | None = None,
        *,
        loss_limit: float = math.inf,
        stop_requested: bool = False,
    ) -> list[dict[str, float]]:
        """Runs one step for each batch and returns each one's scalars.

        A step whose loss or gradient is not finite, or whose loss exceeds the
        limit, counts but changes no weight and no moment.

        Args:
            batches: rows `rows()` of the global batches, with
                `example_numbers` `[rows]`.
            num_applications: of the model's blocks; None: all.

        Returns:
            For each step `sum:<name>` and `weight:<name>` of every loss and
            metric over the global batch; `loss`, the sum of the mean losses
            (without `loss_weight`, so that runs compare);
            `gradient_norm` before clipping; `learning_rate`; `skipped`, 1 if
            nothing was changed; `nonfinite`, 1 if that was for a value that
            is not finite (and no mere overflow that a smaller loss scale
            will cure); `stop_requested`, whether any worker is to stop; and
            under float16 `loss_scale`.
        """
        controls = tf.constant([loss_limit, float(stop_requested)])
        size = self._training_config.steps_per_loop
        if size == 1:
            table = [
                self._train(
                    batch,
                    distribute_rows(self.strategy, _per_row(batch)),
                    controls,
                    num_applications,
                    part_widths=self.part_widths(batch),
                )
                for batch in batches
            ]
        else:
            # One shape for any number of steps: a shorter stack would be
            # another trace, with sums in another order.
            padded = [*batches, *[batches[-1]] * (size - len(batches))]
            stack = {
                name: np.stack([batch[name] for batch in padded])
                for name in _per_row(batches[0])
            }
            table = self._train_many(
                stack,
                distribute_rows(self.strategy, stack, axis=1),
                tf.constant(len(batches)),
                controls,
                num_applications,
            )
        return [
            dict(zip(self._names, map(float, np.array(row)), strict=True))
            for row in table
        ]

    # Compiled functions over all replicas.

    def _train_loop(
        self,
        stack: dict,
        num_steps: tf.Tensor,
        controls: tf.Tensor,
        num_applications: int | None,
    ) -> tf.Tensor:
        def run(number: tf.Tensor) -> tf.Tensor:
            return self._train_step(stack, controls, num_applications, number)

        rows = tf.TensorArray(
            tf.float32,
            self._training_config.steps_per_loop,
            element_shape=[None],
        )
        _, rows = tf.while_loop(
            lambda number, _: number < num_steps,
            lambda number, rows: (number + 1, rows.write(number, run(number))),
            (tf.constant(0), rows),
            parallel_iterations=1,
        )
        return rows.gather(tf.range(num_steps))

    def _train_step(
        self,
        batch: dict,
        controls: tf.Tensor,
        num_applications: int | None,
        number: tf.Tensor | None = None,
        part_widths: tuple[int, ...] = (),
    ) -> tf.Tensor:
        """Returns the scalars of a step as one vector (see `_names`)."""
        step = functools.partial(
            self._replica_train_step,
            num_applications=num_applications,
            part_widths=part_widths,
        )
        return self._first(
            self.strategy.run(step, args=(batch, controls, number))
        )

    # Functions of one replica.

    def _replica_train_step(
        self,
        features: dict,
        controls: tf.Tensor,
        number: tf.Tensor | None,
        num_applications: int | None,
        part_widths: tuple[int, ...],
    ) -> tf.Tensor:
        features = {
            name: value if number is None else value[number]
            for name, value in features.items()
        }
        numbers = features.pop("example_numbers")
        step = self.optimizer.iterations
        # Reduced before the gradient, so that every label has the same weight
        # on every replica.
        weights = reduced_scalars(self.objective.weights(features))
        scale = self._loss_scale.value() if self._loss_scale else 1.0
        sums, by_path = self._compute_gradients(
            features,
            example_keys(self._training_config.seed, step, numbers),
            {
                target.loss: tf.math.divide_no_nan(
                    scale * target.loss_weight, weights[target.loss]
                )
                for target in self.objective.targets
                if target.loss_weight
            },
            micro_batch_size=self._micro_batch(numbers.shape[0]),
            num_applications=num_applications,
            part_widths=part_widths,
        )
        # A variable that no loss reaches (the pooler and the sentence head,
        # where segments have no label, or their loss no weight) is not
        # updated, as in google-research/albert: under LAMB the weight decay
        # of a gradient of 0 takes the whole learning rate off it at every
        # step.
        reached = [v for v in self._trained if v.path in by_path]
        gradients = all_reduce([by_path[v.path] for v in reached])
        sums = reduced_scalars({"stop_requested": controls[1], **sums})
        if self._loss_scale:
            gradients = [gradient / scale for gradient in gradients]
        # After the reduction: the norm of the global batch's gradient.
        norm = tf.linalg.global_norm(gradients)
        loss = tf.add_n(
            [
                tf.math.divide_no_nan(sums[f"sum:{name}"], weight)
                for name, weight in weights.items()
            ]
        )
        finite_loss = tf.math.is_finite(loss)
        finite = tf.logical_and(finite_loss, tf.math.is_finite(norm))
        usable = tf.logical_and(finite, loss <= controls[0])
        if self._optimizer_config.max_grad_norm:
            gradients, _ = tf.clip_by_global_norm(
                gradients, self._optimizer_config.max_grad_norm, use_norm=norm
            )
        rate = learning_rate_at(
            step,
            self._optimizer_config,
            self._training_config.num_train_steps,
        )
        results = {
            **sums,
            "loss": loss,
            "gradient_norm": norm,
            "learning_rate": rate,
            "skipped": tf.cast(~usable, tf.float32),
            "nonfinite": tf.cast(~finite, tf.float32),
        }
        new_scale: list[tf.Tensor] = []
        if self._loss_scale:
            overflow = tf.logical_and(finite_loss, scale > 1.0)
            results["nonfinite"] *= tf.cast(~overflow, tf.float32)
            results["loss_scale"] = scale
            new_scale = self._loss_scale.next_values(finite)
        self._names = list(results)
        context = tf.distribute.get_replica_context()
        context.merge_call(
            functools.partial(self._update, reached),
            args=(gradients, rate, usable, new_scale),
        )
        return tf.stack(list(results.values()))

    def _update(
        self,
        variables: list[keras.Variable],
        strategy: tf.distribute.Strategy,
        gradients: list,
        rate: tf.Tensor,
        usable: tf.Tensor,
        new_scale: list[tf.Tensor],
    ) -> None:
        """Updates every replica's copy, all with the same gradients."""
        self._updated_paths = {variable.path for variable in variables}
        averages = self._averages()
        # One call for all variables, and in it one condition: a condition of
        # each variable's own takes a second more to compile.
        strategy.extended.update(
            variables[0].value,
            functools.partial(
                self._update_replica,
                multipliers=[
                    self._multipliers.get(v.path, 1.0) for v in variables
                ],
            ),
            args=(
                usable,
                [v.value for v in variables],
                list(gradients),
                rate,
                [averages.get(v.path) for v in variables],
            ),
            group=False,
        )
        if self._loss_scale:
            for variable, value in zip(
                self._loss_scale.variables().values(), new_scale, strict=True
            ):
                variable.assign(value)
        self.optimizer.iterations.value.assign_add(1)

    def _update_replica(
        self,
        _: tf.Variable,
        usable: tf.Tensor,
        variables: list[tf.Variable],
        gradients: list[tf.Tensor],
        rate: tf.Tensor,
        averages: list[tf.Variable | None],
        *,
        multipliers: list[float],
    ) -> None:
        """Updates one replica's copies where the step is usable."""

        def update() -> tf.Tensor:
            for variable, gradient, average, multiplier in zip(
                variables, gradients, averages, multipliers, strict=True
            ):
                self.optimizer.update_step(
                    gradient, variable, rate * multiplier
                )
                if average is not None:
                    self._average.update_step(
                        average, variable, self.optimizer.iterations.value
                    )
            return tf.constant(True)

        tf.cond(usable, update, lambda: tf.constant(False))
