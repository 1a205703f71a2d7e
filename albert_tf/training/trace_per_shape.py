"""Functions that are compiled separately for each shape of batches."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class TracePerShape:
    """A function with a trace for each shape of batches.

    A single tf.function would warn of its many traces; with `reduce_retracing`
    it would relax them, and sum in another order than a resumed run, which has
    seen other shapes.
    """

    def __init__(self, function: Callable, *, xla: bool = False) -> None:
        self._function = function
        self._xla = xla
        self._by_shape: dict[tuple, Callable] = {}

    def __call__(
        self, *args: object, shape: Sequence[int], **options: object
    ) -> Any:
        """Returns the result, by the trace for the batch's shape and options.

        `shape` is that of `input_ids`; the function takes all but it.
        """
        key = tuple(shape), tuple(options.items())
        if key not in self._by_shape:
            # TensorFlow counts the traces of functions with the same code
            # together, and warns of several; a partial has no code.
            self._by_shape[key] = tf.function(
                functools.partial(self._function, **options),
                autograph=False,
                jit_compile=True if self._xla else None,
            )
        return self._by_shape[key](*args)
