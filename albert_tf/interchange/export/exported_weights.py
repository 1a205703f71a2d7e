"""The weights of an exported model, and the precisions that it may have."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from albert_tf.interchange.model_directory import (
    LoadedModel,
    load_model_directory,
)


class FloatWeights(tf.Module):
    """Weights in the type in which the model has them."""

    def __init__(self, weights: list[keras.Variable]) -> None:
        super().__init__()
        # The model is hidden in functions, which are not tracked; the values
        # of its Keras variables are tracked instead. A server that runs the
        # graph finds no value of a Keras variable, and tracking both would
        # write every weight twice.
        self._values = [variable.value for variable in weights]

    def scope(self) -> contextlib.AbstractContextManager:
        """Returns the context in which the model computes with them."""
        return contextlib.nullcontext()


class Int8Weights(tf.Module):
    """Matrices and tables as int8, with a scale for each column.

    The model computes with their products, in float32.
    """

    def __init__(self, weights: list[keras.Variable]) -> None:
        super().__init__()
        matrices = [weight for weight in weights if len(weight.shape) > 1]
        stored = [_int8(weight.numpy()) for weight in matrices]
        self._integers = [tf.Variable(integers) for integers, _ in stored]
        self._scales = [tf.Variable(scales) for _, scales in stored]
        self._vectors = [w.value for w in weights if len(w.shape) < 2]
        self._matrices = lambda: matrices  # not tracked

    def scope(self) -> contextlib.AbstractContextManager:
        """Returns the context in which the model computes with them."""
        parts = zip(self._matrices(), self._integers, self._scales, strict=True)
        return keras.StatelessScope(
            [
                (matrix, tf.cast(integers, tf.float32) * scales)
                for matrix, integers, scales in parts
            ]
        )


def _int8(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns integers from -127 to 127 and float32 scales of the columns."""
    largest = np.abs(matrix).max(axis=0)
    scales = np.where(largest > 0, largest, 1).astype(np.float32) / 127
    return np.rint(matrix / scales).astype(np.int8), scales


@dataclasses.dataclass(frozen=True)
class Precision:
    """A row of PRECISIONS.

    Attributes:
        load: of a model directory; the model has the weights that the export
            computes with, so that an evaluation of it is one of the export.
        weights: what the export stores.
    """

    load: Callable[[str], LoadedModel]
    weights: type[FloatWeights] | type[Int8Weights]


def _load_int8(directory: str) -> LoadedModel:
    loaded = load_model_directory(directory)
    for weight in loaded.model.weights:
        if len(weight.shape) > 1:
            integers, scales = _int8(weight.numpy())
            weight.assign(integers * scales)
    return loaded


PRECISIONS: dict[str, Precision] = {
    "float32": Precision(load_model_directory, FloatWeights),
    "bfloat16": Precision(
        functools.partial(load_model_directory, dtype="bfloat16"), FloatWeights
    ),
    "int8": Precision(_load_int8, Int8Weights),
}
