"""The loss that Keras' `fit` and `evaluate` report."""

import contextlib
from collections.abc import Iterator, Sequence

import keras
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.losses import WeightedSum


class EpochLoss(keras.metrics.Mean):
    """The loss that Keras reports: that of all examples, however batched.

    Of each label the mean over the weights of the epoch, summed. Keras' own
    mean weighs a batch by its rows; it remains for the rest of the loss (what
    layers add).
    """

    def __init__(self, labels: int) -> None:
        super().__init__(name="loss")
        shape = (labels,)
        self.sums = self.add_variable(shape, "zeros", name="sums")
        self.label_weights = self.add_variable(shape, "zeros", name="weights")
        # The part of a batch's loss that the sums hold.
        self.held = self.add_variable((), "zeros", name="held")
        self._is_open = False

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Lets `add` have effect: in a step that carries a metric's state."""
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False

    def add(self, pairs: Sequence[WeightedSum], loss: Tensor) -> None:
        """Adds a batch's pairs, whose means have the sum `loss`."""
        if self._is_open and pairs:
            sums, weights = zip(*pairs, strict=True)
            self.sums.assign_add(ops.stack(sums))
            self.label_weights.assign_add(ops.stack(weights))
            self.held.assign(loss)

    def update_state(
        self, values: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Adds the loss of a batch of `sample_weight` rows."""
        super().update_state(values - self.held, sample_weight)
        self.held.assign(0.0)

    def result(self) -> Tensor:
        """Returns the loss, a scalar."""
        means = ops.divide_no_nan(self.sums, self.label_weights)
        return super().result() + ops.sum(means)

    def reset_state(self) -> None:
        """Forgets all batches."""
        for variable in self.variables:
            variable.assign(ops.zeros(variable.shape))
