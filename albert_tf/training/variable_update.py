"""The update of a model's variables, equal on every replica."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from albert_tf.optim.moving_average import MovingAverage


class _Row(NamedTuple):
    """A variable in an update: its gradient and learning rate.

    `average` is None where no moving average is kept.
    """

    variable: tf.Variable
    average: tf.Variable | None
    gradient: tf.Tensor
    rate: tf.Tensor


class VariableUpdate:
    """The optimizer's update of some variables and of their averages.

    Keras' own `apply` would reduce the gradients a second time and clip
    before the reduction.
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        variables: Sequence[keras.Variable],
        multipliers: Mapping[str, float],
        average: MovingAverage | None,
    ) -> None:
        """Prepares the updates of `variables`.

        `multipliers` scale the learning rate of a variable, by path; default 1.
        """
        self._optimizer = optimizer
        self._variables = {v.path: v.value for v in variables}
        self._multipliers = multipliers
        self._average = average

    def averages(self) -> dict[str, tf.Variable]:
        """Returns the moving averages by the paths of their variables."""
        if not self._average:
            return {}
        values = (average.value for average in self._average.averages)
        return dict(zip(self._variables, values, strict=True))

    def apply(
        self,
        gradients: Mapping[str, tf.Tensor],
        rate: tf.Tensor,
        usable: tf.Tensor,
    ) -> None:
        """Counts a step, and updates the variables that have a gradient.

        Every replica calls it with the same values. Where the step is not
        usable, no variable and no moment changes, and `optimizer.iterations`
        counts it all the same: they are steps and not updates.
        """
        averages = self.averages()
        rows = [
            _Row(
                variable,
                averages.get(path),
                gradients[path],
                rate * self._multipliers.get(path, 1.0),
            )
            for path, variable in self._variables.items()
            if path in gradients
        ]
        tf.distribute.get_replica_context().merge_call(
            self._update_replicas, args=(rows, usable)
        )

    def _update_replicas(
        self,
        strategy: tf.distribute.Strategy,
        rows: Sequence[_Row],
        usable: tf.Tensor,
    ) -> None:
        # One call for all variables, and in it one condition: a condition of
        # each variable's own takes a second more to compile.
        strategy.extended.update(
            rows[0].variable,
            self._update_replica,
            args=(rows, usable),
            group=False,
        )
        self._optimizer.iterations.value.assign_add(1)

    def _update_replica(
        self, _: tf.Variable, rows: Sequence[_Row], usable: tf.Tensor
    ) -> None:
        def update() -> tf.Tensor:
            for row in rows:
                self._optimizer.update_step(
                    row.gradient, row.variable, row.rate
                )
                if self._average:
                    self._average.update_step(
                        row.average,
                        row.variable,
                        self._optimizer.iterations.value,
                    )
            return tf.constant(True)

        tf.cond(usable, update, lambda: tf.constant(False))
