"""Chains of small operations, trained in one pass over memory.

An activation, a normalisation or a mask is a dozen small operations, and
training runs over memory for each of them, forward and backward. Where Keras
runs on TensorFlow such a chain is compiled by XLA, once as it is and once with
its gradient, which computes again what it needs: nothing but the arguments is
kept. Other backends call the chain as it stands.

Not for layers in inference: there TensorFlow joins a dense layer with its bias
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
        if any(map(keras.backend.is_keras_tensor, arguments)):
            return function(*arguments)
        return joined(*map(tf.convert_to_tensor, arguments))

    return call


def _sum(
    total: keras.KerasTensor, *parts: keras.KerasTensor
) -> keras.KerasTensor:
    """Returns the sum in the type of its first term."""
    for part in parts:
        total = total + keras.ops.cast(part, total.dtype)
    return total


@functools.cache
def _handed_on(uses_left: int) -> Callable:
    import tensorflow as tf

    # TensorFlow's graph optimizer makes one sum of sums of one shape, and
    # that one waits for all its terms: so every other sum is of another.
    shape = (1, -1) if uses_left % 4 == 1 else (-1,)

    def add(total: tf.Tensor, *parts: tf.Tensor) -> tf.Tensor:
        if any(part.dtype != total.dtype for part in parts):
            return compiled(_sum)(total, *parts)
        terms = [tf.reshape(term, shape) for term in (total, *parts)]
        return tf.reshape(tf.add_n(terms), tf.shape(total))

    # Every second use hands its part back as it is, and the one before adds
    # both in one pass over the sum. Counted from the end, where the last use
    # has nothing to hand on.
    @tf.custom_gradient
    def joined(weight: tf.Tensor, value: tf.Tensor) -> tuple:
        def gradients(
            part: tf.Tensor, total: tf.Tensor, later_part: tf.Tensor
        ) -> tuple:
            if uses_left % 2 == 0:
                return total, part
            if uses_left == 1:
                # Nothing was added yet.
                return add(tf.cast(later_part, weight.dtype), part), None
            return add(total, later_part, part), None

        return (
            tf.identity(value),
            tf.identity(weight),
            tf.identity(value),
        ), gradients

    return joined


def handed_on(
    weight: keras.KerasTensor, value: keras.KerasTensor, uses_left: int
) -> tuple[keras.KerasTensor, keras.KerasTensor, keras.KerasTensor]:
    """Returns a weight's value for its use here, and both for the next use.

    So that the gradients of a weight that is used often are added on the way
    back, in the weight's type, with few passes over memory.

    Args:
        weight: the matrix.
        value: the same in the type in which it is used.
        uses_left: how often it is used after this; 0: what is handed on is
            not used.
    """
    if keras.backend.backend() != "tensorflow":
        # Cast anew: the parts of one value would be added in its type.
        return keras.ops.cast(weight, value.dtype), weight, value
    if not uses_left:
        return value, weight, value
    return _handed_on(uses_left)(weight, value)


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
