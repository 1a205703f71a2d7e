"""What a block computes between its matrix products, in one pass each.

An activation or a normalisation is a dozen small operations, and training
runs over memory for each of them, forward and backward. Where Keras runs on
TensorFlow these functions are compiled by XLA, once as they are and once with
their gradient, which computes again what it needs: nothing but the arguments
is kept. Other backends call the same functions as they stand.

For training only: in inference TensorFlow joins a dense layer with its bias
and activation by itself, which a compiled function would prevent.
"""

import functools
from collections.abc import Callable

import keras
from keras import ops


def biased_activation(
    x: keras.KerasTensor, bias: keras.KerasTensor, activation: Callable
) -> keras.KerasTensor:
    """Returns `activation(x + bias)`, computed in at least float32.

    Args:
        x: `[tokens, width]`.
        bias: `[width]`.
        activation: one of layers.ACTIVATIONS.
    """
    return _in_one_pass(_biased_activation, activation)(x, bias)


def normalized_sum(
    gamma: keras.KerasTensor,
    beta: keras.KerasTensor,
    *terms: keras.KerasTensor,
    epsilon: float,
) -> keras.KerasTensor:
    """Returns the layer normalisation of a sum, in at least float32.

    Args:
        gamma: `[width]`.
        beta: `[width]`.
        *terms: `[tokens, width]`, the first of all, or `[width]`. The result
            has the first one's type.
        epsilon: what is added to the variance.
    """
    return _in_one_pass(_normalized_sum, epsilon)(gamma, beta, *terms)


def _wide(x: keras.KerasTensor) -> keras.KerasTensor:
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


def _biased_activation(
    activation: Callable, x: keras.KerasTensor, bias: keras.KerasTensor
) -> keras.KerasTensor:
    return ops.cast(activation(_wide(x) + _wide(bias)), x.dtype)


def _normalized_sum(
    epsilon: float,
    gamma: keras.KerasTensor,
    beta: keras.KerasTensor,
    *terms: keras.KerasTensor,
) -> keras.KerasTensor:
    total = functools.reduce(ops.add, map(_wide, terms))
    normed = ops.layer_normalization(total, gamma, beta, epsilon=epsilon)
    return ops.cast(normed, terms[0].dtype)


@functools.cache
def _in_one_pass(function: Callable, constant: object) -> Callable:
    """Returns the function of tensors that `function` is, given a constant.

    One for all layers: XLA compiles it once for every shape.
    """
    function = functools.partial(function, constant)
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    compiled = functools.partial(tf.function, jit_compile=True, autograph=False)
    forward = compiled(function)

    @compiled
    def backward(gradient: tf.Tensor, *arguments: tf.Tensor) -> list:
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            result = function(*arguments)
        return tape.gradient(result, arguments, gradient)

    @tf.custom_gradient
    def joined(*arguments: tf.Tensor) -> tuple:
        return forward(*arguments), lambda g: backward(g, *arguments)

    @tf.autograph.experimental.do_not_convert
    def call(*arguments: object) -> tf.Tensor:
        # Variables are read out here, where the tape sees it.
        return joined(*map(tf.convert_to_tensor, arguments))

    return call
