"""The inner step: forward, backward, reduction, clipping, update.

Our own loop and not `Model.fit`: under MirroredStrategy fit cannot accumulate
gradients, run several steps per call or compile (Keras 3.15), clips before
the reduction and weights replicas equally whatever they hold.
"""

import functools
from typing import Protocol

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import OptimizerConfig, TrainingConfig, UserError
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.optimizers import (
    Lamb,
    build_optimizer,
    learning_rate_at,
)
from albert_tf.training.distribution import distribute_batch
from albert_tf.training.input_pipeline import Batch
from albert_tf.training.targets import Target

DTYPE_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


class Objective(Protocol):
    """What the trainer needs of a job (see objectives.py).

    Attributes:
        targets: what is predicted; an evaluation says how guessing would do.
    """

    targets: tuple[Target, ...]

    def losses(self, outputs: dict, features: dict) -> dict:
        """Returns name -> (weighted sum, weight)."""

    def metrics(self, outputs: dict, features: dict) -> dict:
        """Returns name -> (weighted sum, weight)."""


class Trainer:
    """A model, its optimizer and their replicas.

    Attributes:
        model: the Keras model.
        optimizer: its LAMB or AdamW; `iterations` counts the updates.
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
        """
        self.model = model
        self.objective = objective
        self.strategy = strategy
        self.optimizer: Lamb | None = None
        self._updated_paths: set[str] = set()
        if optimizer_config:
            self._optimizer_config = optimizer_config
            self._training_config = training_config
            self.optimizer = build_optimizer(optimizer_config)
            self.optimizer.build(model.trainable_variables)
        # A trace per shape: a relaxed one, made after several shapes were
        # seen, sums in another order, and a resumed run has seen others.
        self._train = tf.function(self._train_step)
        self._evaluate = tf.function(self._evaluation_step)

    def variables(self) -> dict[str, tf.Variable]:
        """Returns every variable of model and optimizer by its path."""
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
        return found

    def train_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Makes one update and returns scalars.

        Returns:
            `sum:<name>` and `weight:<name>` of every loss and metric over
            the global batch, `gradient_norm` before clipping and
            `learning_rate`.
        """
        batch = dict(batch)
        rows = len(next(iter(batch.values())))
        batch["example_numbers"] = np.arange(rows, dtype=np.int32)
        return self._train(distribute_batch(self.strategy, batch))

    def trust_ratios(self) -> dict[str, float]:
        """Returns LAMB's trust ratios in the last step, by path.

        None of variables that are excluded or that no loss reaches.
        """
        return {
            path: ratio
            for path, ratio in self.optimizer.trust_ratios().items()
            if path in self._updated_paths
        }

    def evaluation_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns `sum:<name>` and `weight:<name>` over the global batch."""
        return self._evaluate(distribute_batch(self.strategy, batch))

    def _train_step(self, batch: dict) -> dict[str, tf.Tensor]:
        return self._first_replica(
            self.strategy.run(self._replica_train_step, args=(batch,))
        )

    def _evaluation_step(self, batch: dict) -> dict[str, tf.Tensor]:
        return self._first_replica(
            self.strategy.run(self._replica_evaluation_step, args=(batch,))
        )

    def _first_replica(self, results: dict) -> dict[str, tf.Tensor]:
        """Returns the results of one replica; they are reduced already."""
        return {
            name: self.strategy.experimental_local_results(value)[0]
            for name, value in results.items()
        }

    def _replica_train_step(self, features: dict) -> dict[str, tf.Tensor]:
        step = self.optimizer.iterations
        keys = example_keys(
            self._training_config.seed, step, features["example_numbers"]
        )
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            outputs = self.model(features, dropout_keys=keys, training=True)
            losses = self.objective.losses(outputs, features)
            # The weights of all replicas, before the gradient: so every
            # label counts alike, wherever it was.
            weights = _all_reduce([weight for _, weight in losses.values()])
            loss = tf.add_n(
                [
                    tf.math.divide_no_nan(value, weight)
                    for (value, _), weight in zip(
                        losses.values(), weights, strict=True
                    )
                ]
            )
        found = tape.gradient(loss, [v.value for v in variables])
        # A variable that no loss reaches (the pooler and the sentence head,
        # where segments have no label) is left alone, as in
        # google-research/albert: under LAMB the weight decay of a gradient
        # of 0 takes the whole learning rate off it at every step.
        reached = [
            variable
            for variable, gradient in zip(variables, found, strict=True)
            if gradient is not None
        ]
        gradients = _all_reduce(
            [tf.convert_to_tensor(g) for g in found if g is not None]
        )
        # After the reduction: the norm of the global batch's gradient.
        norm = tf.linalg.global_norm(gradients)
        if self._optimizer_config.max_grad_norm:
            gradients, _ = tf.clip_by_global_norm(
                gradients, self._optimizer_config.max_grad_norm, use_norm=norm
            )
        rate = learning_rate_at(
            step,
            self._optimizer_config,
            self._training_config.num_train_steps,
        )
        pairs = {**losses, **self.objective.metrics(outputs, features)}
        results = _reduce_pairs(pairs)
        context = tf.distribute.get_replica_context()
        context.merge_call(
            functools.partial(self._update, reached), args=(gradients, rate)
        )
        return {**results, "gradient_norm": norm, "learning_rate": rate}

    def _update(
        self,
        variables: list[keras.Variable],
        strategy: tf.distribute.Strategy,
        gradients: list,
        rate: tf.Tensor,
    ) -> None:
        """Updates every replica's copy, all with the same gradients."""
        self._updated_paths = {variable.path for variable in variables}
        for variable, gradient in zip(variables, gradients, strict=True):
            strategy.extended.update(
                variable.value,
                lambda var, grad, lr: self.optimizer.update_step(grad, var, lr),
                args=(gradient, rate),
                group=False,
            )
        self.optimizer.iterations.value.assign_add(1)

    def _replica_evaluation_step(self, features: dict) -> dict[str, tf.Tensor]:
        outputs = self.model(features, training=False)
        return _reduce_pairs(
            {
                **self.objective.losses(outputs, features),
                **self.objective.metrics(outputs, features),
            }
        )


def _all_reduce(values: list[tf.Tensor]) -> list[tf.Tensor]:
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def _reduce_pairs(pairs: dict) -> dict[str, tf.Tensor]:
    names = list(pairs)
    flat = _all_reduce([part for name in names for part in pairs[name]])
    results = {}
    for number, name in enumerate(names):
        results[f"sum:{name}"] = flat[2 * number]
        results[f"weight:{name}"] = flat[2 * number + 1]
    return results


class RunningMeans:
    """Sums of (weighted sum, weight) pairs, divided on request.

    The sums are Python floats (double precision): a float32 total stops
    growing in a long run.
    """

    def __init__(self, sums: dict[str, float] | None = None) -> None:
        self.sums = dict(sums or {})

    def add(self, results: dict[str, tf.Tensor]) -> None:
        """Adds the `sum:` and `weight:` scalars of one step."""
        for name, value in results.items():
            if name.startswith(("sum:", "weight:")):
                self.sums[name] = self.sums.get(name, 0.0) + float(value)

    def means(self) -> dict[str, float]:
        """Returns the mean of every name; NaN where the weight is 0."""
        means = {}
        for name, total in self.sums.items():
            if name.startswith("sum:"):
                weight = self.sums["weight:" + name.removeprefix("sum:")]
                means[name.removeprefix("sum:")] = (
                    total / weight if weight else float("nan")
                )
        return means


def check_finite(means: dict[str, float], step: int) -> None:
    """Raises UserError when a loss is NaN or infinite."""
    for name, value in means.items():
        if name.endswith("loss") and not np.isfinite(value):
            raise UserError(
                f"{name} is {value} at step {step}: the run has diverged. "
                "Lower --learning_rate or lengthen --num_warmup_steps, and "
                "start in a new --run_dir."
            )
