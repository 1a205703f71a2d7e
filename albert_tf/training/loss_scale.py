"""Loss scaling for float16, where small gradients become 0."""

import tensorflow as tf

_INITIAL_SCALE = 2.0**15
_MAX_SCALE = 2.0**24
# Good steps in a row after which a larger scale is tried.
_GROWTH_STEPS = 2000


def make_loss_scale(precision: str) -> "LossScale":
    """Returns the scale for a precision, in the strategy's scope."""
    return _AdaptiveScale() if precision == "float16" else LossScale()


class LossScale:
    """The scale 1, for precisions that hold small gradients."""

    def variables(self) -> dict[str, tf.Variable]:
        """Returns the variables for a checkpoint, by name."""
        return {}

    def value(self) -> tf.Tensor | float:
        """Returns the factor of the loss, and so of its gradients."""
        return 1.0

    def unscaled(self, gradients: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the gradients of the loss without the factor."""
        return gradients

    def update(self, finite: tf.Tensor) -> None:
        """Adapts the scale to whether a step was finite."""


class _AdaptiveScale(LossScale):
    """A scale that halves at an overflow and doubles after 2,000 good steps.

    Keras' LossScaleOptimizer checks one replica's gradients before they are
    reduced, so that an infinity on another replica reaches the weights; this
    one is for the reduced gradient.
    """

    def __init__(self) -> None:
        self._scale = tf.Variable(_INITIAL_SCALE, trainable=False)
        self._good_steps = tf.Variable(0, dtype=tf.int64, trainable=False)

    def variables(self) -> dict[str, tf.Variable]:
        return {
            "loss_scale/scale": self._scale,
            "loss_scale/good_steps": self._good_steps,
        }

    def value(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._scale)

    def unscaled(self, gradients: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        scale = self.value()
        return {path: value / scale for path, value in gradients.items()}

    def update(self, finite: tf.Tensor) -> None:
        scale = self.value()
        good = tf.convert_to_tensor(self._good_steps) + 1
        grown = good >= _GROWTH_STEPS
        larger = tf.where(grown, tf.minimum(scale * 2.0, _MAX_SCALE), scale)
        smaller = tf.maximum(scale * 0.5, 1.0)
        counts = tf.logical_and(finite, tf.logical_not(grown))

        def assign(_: tf.distribute.Strategy, *values: tf.Tensor) -> None:
            for variable, value in zip(
                self.variables().values(), values, strict=True
            ):
                variable.assign(value)

        tf.distribute.get_replica_context().merge_call(
            assign,
            args=(
                tf.where(finite, larger, smaller),
                tf.where(counts, good, tf.zeros_like(good)),
            ),
        )
