"""An exponential moving average of weights."""

import contextlib
from collections.abc import Iterator, Sequence

import keras
from keras import KerasTensor as Tensor
from keras import ops


class MovingAverage:
    """Averages of variables: a = d · a + (1 - d) · w after every update.

    d = min(decay, (1 + n) / (10 + n)) after n earlier steps, skipped ones too,
    so that early weights are soon forgotten (as in TensorFlow's
    ExponentialMovingAverage with num_updates). `averages`, float32 and part of
    a checkpoint, are in the order of the variables and start at their values.
    """

    def __init__(
        self, variables: Sequence[keras.Variable], decay: float
    ) -> None:
        self.variables = list(variables)
        self.decay = decay
        self.averages = [
            keras.Variable(
                ops.cast(variable, "float32"),
                dtype="float32",
                trainable=False,
                name=f"{variable.path.replace('/', '_')}_average",
            )
            for variable in self.variables
        ]

    def update_step(
        self,
        average: keras.Variable,
        weight: Tensor,
        steps: Tensor | int,
    ) -> None:
        """Moves an average, or a replica's copy, after earlier `steps`."""
        n = ops.cast(steps, "float32")
        decay = ops.minimum(self.decay, (1.0 + n) / (10.0 + n))
        # This form, unlike d · a + (1 - d) · w, is exact where both are equal.
        step = (1.0 - decay) * (ops.cast(weight, "float32") - average)
        average.assign(average + step)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Replaces the variables by the averages within the context.

        They are restored exactly, also after an error.
        """
        weights = [ops.convert_to_numpy(v) for v in self.variables]
        try:
            for variable, average in zip(
                self.variables, self.averages, strict=True
            ):
                variable.assign(ops.convert_to_numpy(average))
            yield
        finally:
            for variable, value in zip(self.variables, weights, strict=True):
                variable.assign(value)
