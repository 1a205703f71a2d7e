"""The inner step: forward, backward, reduction, clipping, update.

Our own loop and not `Model.fit`: under MirroredStrategy fit cannot accumulate
gradients, run several steps per call or compile (Keras 3.15), clips before
the reduction and weights replicas equally whatever they hold.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from albert_tf.cluster.distribution import distribute_rows, local_rows
from albert_tf.config import OptimizerConfig, TrainingConfig, UserError
from albert_tf.inputs.input_pipeline import Batch
from albert_tf.modeling.dropout import example_keys
from albert_tf.optim.moving_average import MovingAverage
from albert_tf.optim.optimizers import Lamb, build_optimizer
from albert_tf.optim.schedules import learning_rate_at
from albert_tf.optim.variable_rules import (
    rate_multipliers,
    trained_variables,
)
from albert_tf.training.gradients import GradientComputation, named_pairs
from albert_tf.training.loss_scale import LossScale

DTYPE_POLICIES = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}


class Objective(Protocol):
    """What the trainer needs of a job (see objectives.py).

    Attributes:
        loss_names: of the losses that are added up.
    """

    loss_names: tuple[str, ...]

    def weights(self, features: dict) -> dict:
        """Returns the weight of each loss by its name."""

    def losses(self, outputs: dict, features: dict) -> dict:
        """Returns name -> (weighted sum, weight)."""

    def metrics(self, outputs: dict, features: dict) -> dict:
        """Returns name -> (weighted sum, weight)."""

    def label_weights(self, outputs: dict, features: dict) -> dict:
        """Returns what each class weighs, `[classes]`, by what guessing it is
        called; only `evaluation_step` asks."""


class _TracePerShape:
    """A compiled function for each shape of batches.

    One for all would be traced for each as well, and TensorFlow would warn of
    that; or it would be relaxed after several shapes were seen, sum in another
    order, and a resumed run has seen others.
    """

    def __init__(self, function: Callable) -> None:
        self._function = function
        self._by_shape: dict[tuple, Callable] = {}

    def __call__(self, batch: Batch, *args: object, **options: object) -> Any:
        """Returns what the function gives for the arguments.

        Args:
            batch: whose shape it is.
            *args: of the function.
            **options: of the function, hashable; others are another trace.
        """
        shape = batch["input_ids"].shape, tuple(options.items())
        if shape not in self._by_shape:
            # TensorFlow counts the traces of functions with the same code
            # together, and warns of several; a partial has none.
            self._by_shape[shape] = tf.function(
                functools.partial(self._function, **options), autograph=False
            )
        return self._by_shape[shape](*args)


def _arrays_of_rows(batch: Batch) -> Batch:
    """Returns what of a batch has a value for each of its rows."""
    return {n: value for n, value in batch.items() if n != "part_widths"}


def _accelerator() -> str:
    """Returns "TPU", "GPU" or, where neither computes, ""."""
    kinds = ("TPU", "GPU")
    return next((k for k in kinds if tf.config.list_logical_devices(k)), "")


class Trainer:
    """A model, its optimizer and their replicas.

    Attributes:
        model: the Keras model.
        optimizer: its LAMB or AdamW; `iterations` counts the steps.
        strategy: the replicas.
    """

    def __init__(
        self,
        model: keras.Model,
        objective: Objective,
        *,
        strategy: tf.distribute.Strategy,
        optimizer_config: OptimizerConfig | None = None,
        training_config: TrainingConfig | None = None,
    ) -> None:
        """Makes the steps; without an optimizer_config it only evaluates.

        Call within the strategy's scope, as the model must have been.

        Args:
            model: with its weights.
            objective: what to minimise and to report.
            strategy: the replicas.
            optimizer_config: update rule and schedule.
            training_config: seed, steps, precision, micro-batches.

        Raises:
            UserError: when a pattern of `freeze` or of an exclusion is wrong.
        """
        self.model = model
        self.objective = objective
        self.strategy = strategy
        self.optimizer: Lamb | None = None
        self._loss_scale: LossScale | None = None
        self._average: MovingAverage | None = None
        self._updated_paths: set[str] = set()
        if training_config and type(training_config.micro_batch_size) is str:
            raise UserError(
                f"micro_batch_size={training_config.micro_batch_size}: a "
                "Trainer needs the number (see micro_batch.py)."
            )
        if optimizer_config:
            self._optimizer_config = optimizer_config
            self._training_config = training_config
            self._make_optimizer()
        self._train = _TracePerShape(self._train_step)
        self._train_many = _TracePerShape(self._train_loop)
        self._evaluate = _TracePerShape(self._evaluation_step)
        self._predict = _TracePerShape(self._prediction)
        self._answer = _TracePerShape(self._answers)

    def _make_optimizer(self) -> None:
        config = self._optimizer_config
        self._trained = trained_variables(self.model, config.freeze)
        self._multipliers = rate_multipliers(self.model, config.layer_decay)
        self.optimizer = build_optimizer(config)
        self.optimizer.build(self._trained)
        if self._training_config.precision == "float16":
            self._loss_scale = LossScale()
        if config.ema_decay:
            self._average = MovingAverage(self._trained, config.ema_decay)
        self._compute_gradients = GradientComputation(
            self.model,
            self.objective,
            self._trained,
            xla=self._training_config.xla,
        )

    def num_devices(self) -> int:
        """Returns how many devices compute, each with a rate of its own.

        The logical CPUs of a machine are parts of one.
        """
        return self.strategy.num_replicas_in_sync if _accelerator() else 1

    def devices(self) -> str:
        """Returns the replicas in words, such as `8 replicas on GPU`."""
        number = self.strategy.num_replicas_in_sync
        replicas = "1 replica" if number == 1 else f"{number} replicas"
        return f"{replicas} on {_accelerator() or 'CPU'}"

    def variables(self) -> dict[str, tf.Variable]:
        """Returns every variable that a checkpoint must hold, by its path."""
        found: dict[str, tf.Variable] = {}
        # Not the states of dropout's seed generators: here every mask comes
        # from a key, and their paths count up within a process.
        keras_variables = [
            *self.model.trainable_variables,
            *self.optimizer.variables,
        ]
        for variable in keras_variables:
            if variable.path in found:
                raise AssertionError(f"two variables at {variable.path}")
            found[variable.path] = variable.value
        if self._average:
            for variable, average in zip(
                self._trained, self._average.averages, strict=True
            ):
                found[f"average/{variable.path}"] = average.value
        if self._loss_scale:
            found.update(self._loss_scale.variables())
        return found

    def rows(self, batch_size: int) -> range:
        """Returns the rows of a global batch that this process reads.

        Those from batch_size on are padding: the replicas' shares are of one
        size, and a multiple of the micro-batch.
        """
        replicas = self.strategy.num_replicas_in_sync
        share = -(-batch_size // replicas)
        micro = self._micro_batch(share)
        return local_rows(
            replicas * (-(-share // micro) * micro), self.strategy
        )

    def widths(self, batch: Batch) -> tuple[int, ...]:
        """Returns the widths at which equal parts of a batch are computed.

        Parts are for CPUs, which take as long as there are tokens: several
        replicas would wait for one another, and accelerators for small parts.
        There all rows are one part, as wide as the batch is.
        """
        whole = (batch["input_ids"].shape[-1],)
        if self.strategy.num_replicas_in_sync > 1 or _accelerator():
            return whole
        widths = tuple(map(int, batch.get("part_widths", whole)))
        rows = len(batch["example_numbers"])
        share = rows // len(widths)
        return whole if share % min(self._micro_batch(rows), share) else widths

    def evaluation_rows(self, batch_size: int) -> range:
        """Returns the same for batches of an evaluation."""
        return local_rows(batch_size, self.strategy)

    def _micro_batch(self, share: int) -> int:
        return min(self._training_config.micro_batch_size or share, share)

    def train_step(
        self, batch: Batch, num_applications: int | None = None
    ) -> dict[str, float]:
        """Returns the scalars of one step (see `train_steps`)."""
        (results,) = self.train_steps([batch], num_applications)
        return results

    def train_steps(
        self,
        batches: Sequence[Batch],
        num_applications: int | None = None,
        *,
        loss_limit: float = math.inf,
        stop_requested: bool = False,
    ) -> list[dict[str, float]]:
        """Makes one step for each batch and returns each one's scalars.

        A step whose loss or gradient is not finite, or whose loss exceeds the
        limit, counts but changes no weight and no moment.

        Args:
            batches: rows `rows()` of the global batches, with
                `example_numbers` `[rows]`.
            num_applications: of the model's blocks; None: all.
            loss_limit: see above.
            stop_requested: whether this worker is to stop.

        Returns:
            For each step `sum:<name>` and `weight:<name>` of every loss and
            metric over the global batch; `loss`, the sum of the mean losses;
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
                    distribute_rows(self.strategy, _arrays_of_rows(batch)),
                    controls,
                    num_applications,
                    part_widths=self.widths(batch),
                )
                for batch in batches
            ]
        else:
            # One shape however many steps: a shorter stack would be another
            # trace, with sums in another order.
            padded = [*batches, *[batches[-1]] * (size - len(batches))]
            stack = {
                name: np.stack([batch[name] for batch in padded])
                for name in _arrays_of_rows(batches[0])
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

    def trust_ratios(self) -> dict[str, float]:
        """Returns LAMB's trust ratios in the last step, by path.

        None of variables that are excluded or that no loss reaches.
        """
        return {
            path: ratio
            for path, ratio in self.optimizer.trust_ratios().items()
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

    def evaluation_step(
        self, batch: Batch, num_applications: int | None = None
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Returns measures and the weights of the labels.

        The measures are `sum:<name>` and `weight:<name>` over the global
        batch; the weights, `[classes]`, are those of each target's classes,
        by the name of what guessing would reach.
        """
        measures, labels = self._evaluate(
            batch, distribute_rows(self.strategy, batch), num_applications
        )
        return (
            {name: float(value) for name, value in measures.items()},
            {name: value.numpy() for name, value in labels.items()},
        )

    def outputs(self, batch: Batch) -> dict[str, np.ndarray]:
        """Returns the heads' outputs for a batch, computed on one device."""
        results = self._predict(
            batch, {name: tf.constant(value) for name, value in batch.items()}
        )
        return {name: value.numpy() for name, value in results.items()}

    def answers(
        self, batch: Batch
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Returns measures, and the heads' outputs for the global batch.

        The measures are `sum:<name>` and `weight:<name>` of the losses. Every
        worker gets the outputs of all rows, `[batch, ...]`, those that fill
        up the replicas' shares among them.
        """
        measures, outputs = self._answer(
            batch, distribute_rows(self.strategy, batch)
        )
        return (
            {name: float(value) for name, value in measures.items()},
            {name: value.numpy() for name, value in outputs.items()},
        )

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
        results = self.strategy.run(step, args=(batch, controls, number))
        return self.strategy.experimental_local_results(results)[0]

    def _evaluation_step(
        self, batch: dict, num_applications: int | None
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        step = functools.partial(
            self._replica_evaluation_step, num_applications=num_applications
        )
        # They are reduced: those of one replica are those of all.
        return tf.nest.map_structure(
            lambda value: self.strategy.experimental_local_results(value)[0],
            self.strategy.run(step, args=(batch,)),
        )

    def _answers(
        self, batch: dict
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        measures, outputs = self.strategy.run(
            self._replica_answers, args=(batch,)
        )
        if self.strategy.num_replicas_in_sync > 1:
            outputs = {
                name: self.strategy.gather(value, axis=0)
                for name, value in outputs.items()
            }
        return (
            # They are reduced: those of one replica are those of all.
            tf.nest.map_structure(
                lambda value: self.strategy.experimental_local_results(value)[
                    0
                ],
                measures,
            ),
            outputs,
        )

    def _replica_answers(
        self, features: dict
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        outputs = self._prediction(features)
        measures = named_pairs(self.objective.losses(outputs, features))
        return _reduced_scalars(measures), outputs

    def _prediction(self, batch: dict) -> dict[str, tf.Tensor]:
        return self.model(batch, training=False, heads_only=True)

    def _replica_train_step(
        self,
        features: dict,
        controls: tf.Tensor,
        number: tf.Tensor | None,
        num_applications: int | None,
        part_widths: tuple[int, ...],
    ) -> tf.Tensor:
        if number is not None:
            features = {name: v[number] for name, v in features.items()}
        else:
            features = dict(features)
        numbers = features.pop("example_numbers")
        step = self.optimizer.iterations
        # The weights of all replicas, before the gradient: so every label
        # counts alike, wherever it was.
        weights = _reduced_scalars(self.objective.weights(features))
        scale = self._loss_scale.value() if self._loss_scale else 1.0
        sums, found = self._compute_gradients(
            features,
            example_keys(self._training_config.seed, step, numbers),
            {
                name: tf.math.divide_no_nan(scale, weight)
                for name, weight in weights.items()
            },
            micro_batch_size=self._micro_batch(numbers.shape[0]),
            num_applications=num_applications,
            part_widths=part_widths,
        )
        # A variable that no loss reaches (the pooler and the sentence head,
        # where segments have no label) is left alone, as in
        # google-research/albert: under LAMB the weight decay of a gradient
        # of 0 takes the whole learning rate off it at every step.
        reached = [
            variable
            for variable, gradient in zip(self._trained, found, strict=True)
            if gradient is not None
        ]
        gradients = _all_reduce([g for g in found if g is not None])
        sums = _reduced_scalars({"stop_requested": controls[1], **sums})
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
        extended = strategy.extended

        step = self.optimizer.iterations.value

        def update(
            variable: tf.Variable,
            gradient: tf.Tensor,
            rate: tf.Tensor,
            average: tf.Variable | None,
        ) -> tf.Tensor:
            self.optimizer.update_step(gradient, variable, rate)
            if average is not None:
                self._average.update_step(average, variable, step)
            return tf.constant(True)

        def update_if(
            variable: tf.Variable,
            usable: tf.Tensor,
            *args: object,
        ) -> None:
            tf.cond(
                usable,
                lambda: update(variable, *args),
                lambda: tf.constant(False),
            )

        averages: dict[str, tf.Variable] = {}
        if self._average:
            averages = {
                variable.path: average.value
                for variable, average in zip(
                    self._trained, self._average.averages, strict=True
                )
            }
        for variable, gradient in zip(variables, gradients, strict=True):
            factor = self._multipliers.get(variable.path, 1.0)
            extended.update(
                variable.value,
                lambda var, use, grad, lr, avg, factor=factor: update_if(
                    var, use, grad, lr * factor, avg
                ),
                args=(usable, gradient, rate, averages.get(variable.path)),
                group=False,
            )
        if self._loss_scale:
            for variable, value in zip(
                self._loss_scale.variables().values(), new_scale, strict=True
            ):
                extended.update(
                    variable,
                    lambda var, new: var.assign(new),
                    args=(value,),
                    group=False,
                )
        step.assign_add(1)

    def _replica_evaluation_step(
        self, features: dict, num_applications: int | None
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        outputs = self.model(
            features,
            training=False,
            heads_only=True,
            num_applications=num_applications,
        )
        measures = named_pairs(
            {
                **self.objective.losses(outputs, features),
                **self.objective.metrics(outputs, features),
            }
        )
        labels = self.objective.label_weights(outputs, features)
        totals = _all_reduce(list(labels.values()))
        return (
            _reduced_scalars(measures),
            dict(zip(labels, totals, strict=True)),
        )


def _all_reduce(values: list[tf.Tensor]) -> list[tf.Tensor]:
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def _reduced_scalars(values: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns float32 scalars summed over the replicas, in one reduction."""
    (total,) = _all_reduce([tf.stack(list(values.values()))])
    return dict(zip(values, tf.unstack(total), strict=True))
