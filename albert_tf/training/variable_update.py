"""The update of a model's variables, equal on every replica."""

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from albert_tf.optim.moving_average import MovingAverage

ByPath = Mapping[str, tf.Tensor]


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
        self, gradients: ByPath, rate: tf.Tensor, usable: tf.Tensor
    ) -> None:
        """Counts a step, and updates the variables that have a gradient.

        Every replica calls it with the same values. Where the step is not
        usable, no variable and no moment changes, and `optimizer.iterations`
        counts it all the same: they are steps and not updates.
        """
        tf.distribute.get_replica_context().merge_call(
            self._update_replicas, args=(gradients, rate, usable)
        )

    def _update_replicas(
        self,
        strategy: tf.distribute.Strategy,
        gradients: ByPath,
        rate: tf.Tensor,
        usable: tf.Tensor,
    ) -> None:
        variables = {p: v for p, v in self._variables.items() if p in gradients}
        averages = {p: v for p, v in self.averages().items() if p in gradients}
        # One call for all variables, and in it one condition: a condition of
        # each variable's own takes a second more to compile.
        strategy.extended.update(
            next(iter(variables.values())),
            self._update_replica,
            args=(variables, averages, gradients, rate, usable),
            group=False,
        )
        self._optimizer.iterations.value.assign_add(1)

    def _update_replica(
        self,
        _: tf.Variable,
        variables: Mapping[str, tf.Variable],
        averages: Mapping[str, tf.Variable],
        gradients: ByPath,
        rate: tf.Tensor,
        usable: tf.Tensor,
    ) -> None:
        def update() -> tf.Tensor:
            for path, variable in variables.items():
                factor = self._multipliers.get(path, 1.0)
                self._optimizer.update_step(
                    gradients[path], variable, rate * factor
                )
                if self._average:
                    self._average.update_step(
                        averages[path],
                        variable,
                        self._optimizer.iterations.value,
                    )
            return tf.constant(True)

        tf.cond(usable, update, lambda: tf.constant(False))
