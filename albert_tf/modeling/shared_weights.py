"""Kernels that several block applications share: casts and gradients.

The gradient of a shared kernel is accumulated one application after another,
and a kernel is cast once. The layers stay unchanged: they find tensors in place
of their variables.
"""

import collections
import contextlib
from collections.abc import Sequence

import keras
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.kernels import chain_gradients
from albert_tf.modeling.recomputation import variables_as


def _read(variable: keras.Variable) -> Tensor:
    """Returns a variable's value as a tensor, which a tape sees."""
    return ops.reshape(variable, variable.shape)


class SharedWeights:
    """The kernels that several block applications of a pass use.

    In training an application hands a kernel on to the next one that uses it,
    so that the gradients of the uses are added one by one. Otherwise all of
    them, which fill the memory of a large model, would be kept until the last
    is there. In a precision below the variables' each shared kernel is cast
    once, in training on other backends than TensorFlow at every use.
    """

    def __init__(
        self,
        applications: Sequence[keras.layers.Layer],
        policy: keras.DTypePolicy,
        training: bool,
    ) -> None:
        """Counts the uses in the applications, whose types are `policy`'s."""
        self._training = training
        self._dtype = policy.compute_dtype
        self._is_needed = training or self._dtype != policy.variable_dtype
        uses = collections.Counter(
            variable.path
            for block in applications
            for variable in block.weights
            if _is_matrix(variable)
        )
        self._remaining_uses = {path: n for path, n in uses.items() if n > 1}
        self._values: dict[str, tuple[Tensor, Tensor]] = {}

    def values_for(
        self, block: keras.layers.Layer
    ) -> contextlib.AbstractContextManager:
        """Returns the scope of the next application, which is the block's."""
        if not self._is_needed:
            return contextlib.nullcontext()
        # All weights, since a scope hides the values of one around it.
        return variables_as((v, self._value_for_use(v)) for v in block.weights)

    def _value_for_use(self, variable: keras.Variable) -> Tensor:
        path = variable.path
        if path not in self._remaining_uses:
            return _read(variable)
        if path not in self._values:
            weight = _read(variable)
            self._values[path] = weight, ops.cast(weight, self._dtype)
        weight, value = self._values[path]
        if not self._training:
            return value
        self._remaining_uses[path] -= 1
        is_last = not self._remaining_uses[path]
        use, weight = chain_gradients(weight, value, is_last)
        self._values[path] = weight, value
        return use


def _is_matrix(variable: keras.Variable) -> bool:
    """Returns whether a variable is a matrix of floats, not quantized."""
    is_float = keras.backend.is_float_dtype(variable.dtype)
    return is_float and len(variable.shape) == 2
