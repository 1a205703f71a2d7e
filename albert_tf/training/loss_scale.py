"""Loss scaling for float16, where small gradients become 0."""

import tensorflow as tf

_INITIAL_SCALE = 2.0**15
_MAX_SCALE = 2.0**24
# Good steps in a row after which a larger scale is tried.
_GROWTH_STEPS = 2000


class LossScale:
    """A scale that halves at an overflow and doubles after 2,000 good steps.

    Keras' LossScaleOptimizer checks one replica's gradients before they are
    reduced, so that an infinity on another replica reaches the weights; this
    one uses the reduced gradient.
    """

    def __init__(self) -> None:
        self._scale = tf.Variable(_INITIAL_SCALE, trainable=False)
        self._good_steps = tf.Variable(0, dtype=tf.int64, trainable=False)

    def variables(self) -> dict[str, tf.Variable]:
        """Returns the variables for a checkpoint, by name."""
        return {
            "loss_scale/scale": self._scale,
            "loss_scale/good_steps": self._good_steps,
        }

    def value(self) -> tf.Tensor:
        """Returns the scale, a float32 scalar."""
        return tf.convert_to_tensor(self._scale)

    def next_values(self, finite: tf.Tensor) -> list[tf.Tensor]:
        """Returns the variables' values after a step, in their order."""
        scale = self.value()
        good = tf.convert_to_tensor(self._good_steps) + 1
        grown = good >= _GROWTH_STEPS
        larger = tf.where(grown, tf.minimum(scale * 2.0, _MAX_SCALE), scale)
        smaller = tf.maximum(scale * 0.5, 1.0)
        counts = tf.logical_and(finite, tf.logical_not(grown))
        return [
            tf.where(finite, larger, smaller),
            tf.where(counts, good, tf.zeros_like(good)),
        ]
