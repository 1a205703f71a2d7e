"""Keras' compiled steps, each after a check of its batch.

XLA drops assertions, and JAX has none. So the check is outside of what Keras
compiles: in TensorFlow's graph around it, or in Python.
"""

from collections.abc import Callable
from typing import Any

import keras

from albert_tf.config import UserError
from albert_tf.modeling.kernels import ON_TENSORFLOW


class CheckedSteps(keras.Model):
    """A model whose batches are checked before each compiled step."""

    _predicts = False

    def make_predict_function(self, force: bool = False) -> object:
        """Makes the function that predicts, which reads no labels."""
        self._predicts = True
        try:
            return super().make_predict_function(force)
        finally:
            self._predicts = False

    def _autoconvert_optionals(self, step: Callable) -> Callable:
        """Returns a compiled step for Keras on TensorFlow."""
        return super()._autoconvert_optionals(self._after_check(step))

    def _make_function(self, step: Callable, **options: object) -> Callable:
        """Returns a loop of a step: compiled on JAX, not yet on TensorFlow."""
        if not ON_TENSORFLOW:
            step = self._after_check(step)
        return super()._make_function(step, **options)

    def _after_check(self, step: Callable) -> Callable:
        labelled = not self._predicts

        def checked_step(*args: Any) -> object:
            try:
                batch = keras.utils.unpack_x_y_sample_weight(args[-1])
                self.check_batch(*batch, labelled=labelled)
                return step(*args)
            except UserError:
                if not ON_TENSORFLOW:
                    self._take_back(args[0])
                raise

        return checked_step

    def check_batch(
        self, x: Any, y: Any, sample_weight: Any, *, labelled: bool
    ) -> None:
        """Raises UserError for a batch whose values do not fit the model.

        In a graph of TensorFlow it adds assertions. `labelled` is whether the
        step reads labels.
        """
        raise NotImplementedError

    def _take_back(self, state: tuple) -> None:
        """Gives the model the state that Keras on JAX took from it."""
        parts = ["trainable_variables", "non_trainable_variables"]
        parts += ["optimizer_variables"] if len(state) == 4 else []
        parts += ["metrics_variables"] if len(state) > 2 else []
        self._jax_state = dict(zip(parts, state, strict=True))
        self._jax_state_synced = False
        self.jax_state_sync()
