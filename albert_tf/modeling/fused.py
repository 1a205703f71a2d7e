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
def compiled(function: Callable, *constants: object) -> Callable:
    """Returns the function of tensors that `function` is, given constants.

    Compiled by XLA, without a gradient; else as `in_one_pass`.
    """
    function = functools.partial(function, *constants)
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    run = tf.function(function, jit_compile=True, autograph=False)

    @tf.autograph.experimental.do_not_convert
    def call(*arguments: object) -> object:
        # Variables are read out here, where a tape sees it.
        return run(*map(tf.convert_to_tensor, arguments))

    return call


@functools.cache
def in_one_pass(function: Callable, *constants: object) -> Callable:
    """Returns the function of tensors that `function` is, given constants.

    It has one result, and gradients for the arguments that are floats. There
    is one for all layers, which XLA compiles once for every shape.

    Args:
        function: of the constants, then of tensors, in `keras.ops`.
        *constants: its first arguments, hashable.
    """
    forward = compiled(function, *constants)
    if keras.backend.backend() != "tensorflow":
        return forward
    import tensorflow as tf

    function = functools.partial(function, *constants)

    @functools.partial(tf.function, jit_compile=True, autograph=False)
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
        return joined(*map(tf.convert_to_tensor, arguments))

    return call


@functools.cache
def _product() -> Callable:
    if keras.backend.backend() != "tensorflow":
        return keras.ops.matmul
    import tensorflow as tf

    transposed = compiled(tf.transpose)

    @tf.custom_gradient
    def joined(inputs: tf.Tensor, weight: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> tuple:
            # Or all blocks' would be transposed at the start, and held.
            with tf.control_dependencies([gradient]):
                columns_first = transposed(weight)
            return (
                tf.matmul(gradient, columns_first),
                tf.matmul(inputs, gradient, transpose_a=True),
            )

        return tf.matmul(inputs, weight), gradients

    @tf.autograph.experimental.do_not_convert
    def call(inputs: object, weight: object) -> tf.Tensor:
        weight = tf.convert_to_tensor(weight)
        rows, columns = weight.shape
        if weight.dtype != tf.float32 or columns <= rows:
            return tf.matmul(inputs, weight)
        return joined(inputs, weight)

    return call


def product(
    inputs: keras.KerasTensor, weight: keras.KerasTensor
) -> keras.KerasTensor:
    """Returns `inputs @ weight`, `[n, rows]` by `[rows, columns]`.

    In float32 on a CPU the gradient for the inputs, a product with the
    transposed weight, is a third slower than the forward product where there
    are more columns than rows: there the weight is transposed before, which
    takes a quarter of what that saves. (Compiled, so that TensorFlow's graph
    optimizer does not join the two again.)
    """
    return _product()(inputs, weight)
