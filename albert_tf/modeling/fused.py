"""Chains of small operations, trained in one pass over memory.

An activation, a normalisation or a mask is a dozen small operations, and
training runs over memory for each of them, forward and backward. Where Keras
runs on TensorFlow such a chain is compiled by XLA, once as it is and once with
its gradient, which computes again what it needs: nothing but the arguments is
kept. Other backends call the chain as it stands.

For training only: in inference TensorFlow joins a dense layer with its bias
and activation by itself, which a compiled function would prevent.
"""

import functools
from collections.abc import Callable

import keras


@functools.cache
def in_one_pass(function: Callable, *constants: object) -> Callable:
    """Returns the function of tensors that `function` is, given constants.

    It has one result, and gradients for the arguments that are floats. There
    is one for all layers, which XLA compiles once for every shape.

    Args:
        function: of the constants, then of tensors, in `keras.ops`.
        *constants: its first arguments, hashable.
    """
    function = functools.partial(function, *constants)
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    compiled = functools.partial(tf.function, jit_compile=True, autograph=False)
    forward = compiled(function)

    @compiled
    def backward(gradient: tf.Tensor, *arguments: tf.Tensor) -> list:
        floats = [x for x in arguments if x.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            result = function(*arguments)
        found = iter(tape.gradient(result, floats, gradient))
        return [next(found) if x.dtype.is_floating else None for x in arguments]

    @tf.custom_gradient
    def joined(*arguments: tf.Tensor) -> tuple:
        return forward(*arguments), lambda g: backward(g, *arguments)

    @tf.autograph.experimental.do_not_convert
    def call(*arguments: object) -> tf.Tensor:
        # Variables are read out here, where the tape sees it.
        return joined(*map(tf.convert_to_tensor, arguments))

    return call
