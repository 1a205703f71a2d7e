"""Fused kernels of training: chains of small operations in few passes.

An activation, a normalisation or a mask is a dozen small operations, and each
of them is a pass over memory, forward and backward. On TensorFlow such a chain
is compiled by XLA, once as it is and once with its gradient, which computes
again what it needs: nothing but the arguments is kept. On other backends every
kernel is the plain function of `keras.ops` that it is made from.

Not for layers in inference: there TensorFlow joins a dense layer with its bias
and activation by itself, which a compiled function would prevent.
"""

import functools
from collections.abc import Callable

import keras
from keras import KerasTensor as Tensor


def _is_symbolic(*arguments: object) -> bool:
    return any(map(keras.backend.is_keras_tensor, arguments))


@functools.cache
def compiled(function: Callable, *constants: object) -> Callable:
    """Returns `function` of the constants and of tensors, compiled by XLA.

    Without a gradient.
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
def fused(function: Callable, *constants: object) -> Callable:
    """Returns `function` of the constants and of tensors in one pass.

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
        if _is_symbolic(*arguments):
            return function(*arguments)
        return joined(*map(tf.convert_to_tensor, arguments))

    return call


@functools.cache
def _product() -> Callable:
    import tensorflow as tf

    @tf.custom_gradient
    def joined(inputs: tf.Tensor, weight: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> tuple:
            # Or the weight would be transposed at the start, and kept.
            with tf.control_dependencies([gradient]):
                # Compiled: TensorFlow's graph optimizer would undo it.
                transposed = compiled(tf.transpose)(weight)
            return (
                tf.matmul(gradient, transposed),
                tf.matmul(inputs, gradient, transpose_a=True),
            )

        return tf.matmul(inputs, weight), gradients

    @tf.autograph.experimental.do_not_convert
    def call(inputs: object, weight: object) -> tf.Tensor:
        # Variables are read out here, where a tape sees it.
        return joined(*map(tf.convert_to_tensor, (inputs, weight)))

    return call


def product(inputs: Tensor, weight: Tensor) -> Tensor:
    """Returns `inputs @ weight`, `[n, rows]` by `[rows, columns]`.

    The gradient of the inputs multiplies by the transposed weight. In float32
    on a CPU that is a third slower where there are more columns than rows:
    there the weight is transposed first. (base, 4 x 128 tokens, float32: a
    step takes 4 % longer without.)
    """
    rows, columns = weight.shape
    if (
        keras.backend.backend() != "tensorflow"
        or weight.dtype != "float32"
        or columns <= rows
        or _is_symbolic(inputs, weight)
    ):
        return keras.ops.matmul(inputs, weight)
    return _product()(inputs, weight)


@functools.cache
def recomputed_product(function: Callable, *constants: object) -> Callable:
    """Returns `function(...) @ weight` as a function of weight and tensors.

    The result of `function`, `[n, rows]`, is not kept for the gradient: the
    pass that computes the gradients of its tensors computes it again.
    (small, 32 x 128 tokens, bfloat16: 30 % more memory without; 12 layers of
    width 512, 2 x 128 tokens, float32: 13 % more.)

    Args:
        function: of the constants, then of tensors of floats, in `keras.ops`.
        *constants: its first arguments, hashable.
    """
    forward = compiled(function, *constants)

    def plain(weight: object, *arguments: object) -> object:
        return keras.ops.matmul(forward(*arguments), weight)

    if keras.backend.backend() != "tensorflow":
        again = keras.remat(plain)
        return lambda *given: again(*map(keras.ops.convert_to_tensor, given))
    import tensorflow as tf

    function = functools.partial(function, *constants)

    @functools.partial(tf.function, jit_compile=True, autograph=False)
    def backward(gradient: tf.Tensor, *arguments: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            result = function(*arguments)
        return result, tape.gradient(result, arguments, gradient)

    @tf.custom_gradient
    def joined(weight: tf.Tensor, *arguments: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> tuple:
            result, found = backward(
                tf.matmul(gradient, weight, transpose_b=True), *arguments
            )
            return tf.matmul(result, gradient, transpose_a=True), *found

        return plain(weight, *arguments), gradients

    @tf.autograph.experimental.do_not_convert
    def call(weight: object, *arguments: object) -> tf.Tensor:
        if _is_symbolic(weight, *arguments):
            return keras.ops.matmul(function(*arguments), weight)
        return joined(*map(tf.convert_to_tensor, (weight, *arguments)))

    return call


@functools.cache
def with_gradient(function: Callable, gradient: Callable) -> Callable:
    """Returns the function of tensors with `function`'s first result.

    Args:
        function: of tensors; returns the result and all that `gradient`
            needs.
        gradient: of the result's gradient, what it needs and the tensors;
            returns the gradient of the first of them. The others have none.
    """
    forward = compiled(function)
    if keras.backend.backend() != "tensorflow":
        return lambda *arguments: forward(*arguments)[0]
    import tensorflow as tf

    @tf.custom_gradient
    def joined(*arguments: tf.Tensor) -> tuple:
        result, *needed = forward(*arguments)

        def gradients(found: tf.Tensor) -> list:
            first = compiled(gradient)(found, *needed, *arguments)
            return [first] + [None] * (len(arguments) - 1)

        return result, gradients

    @tf.autograph.experimental.do_not_convert
    def call(*arguments: object) -> tf.Tensor:
        if _is_symbolic(*arguments):
            return function(*arguments)[0]
        return joined(*map(tf.convert_to_tensor, arguments))

    return call


@functools.cache
def _permuted() -> Callable:
    import tensorflow as tf

    @tf.custom_gradient
    def joined(x: tf.Tensor, rows: tf.Tensor, back: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> tuple:
            return tf.gather(gradient, back), None, None

        return tf.gather(x, rows), gradients

    return joined


def permuted(x: Tensor, rows: Tensor, back: Tensor) -> Tensor:
    """Returns `x[rows]`, whose gradient is taken by `back`.

    Without TensorFlow's scatter. Exact where `back` inverts `rows`, or the
    gradient is 0.
    """
    if keras.backend.backend() != "tensorflow":
        return keras.ops.take(x, rows, axis=0)
    return _permuted()(x, rows, back)


def states_at(hidden: Tensor, positions: Tensor) -> Tensor:
    """Returns `[batch, n, H]` of `[batch, seq, H]` at `[batch, n]`."""
    if keras.backend.backend() != "tensorflow" or _is_symbolic(
        hidden, positions
    ):
        positions = keras.ops.expand_dims(positions, -1)
        return keras.ops.take_along_axis(hidden, positions, axis=1)
    import tensorflow as tf

    return tf.gather(hidden, positions, batch_dims=1)


def _sum(total: Tensor, part: Tensor) -> Tensor:
    """Returns the sum in the type of its first term."""
    return total + keras.ops.cast(part, total.dtype)


@functools.cache
def _shared_use(is_last: bool) -> Callable:
    import tensorflow as tf

    @tf.custom_gradient
    def joined(weight: tf.Tensor, value: tf.Tensor) -> tuple:
        def gradients(part: tf.Tensor, total: tf.Tensor) -> tuple:
            if is_last:
                return tf.cast(part, weight.dtype), None
            # Compiled: TensorFlow's graph optimizer makes one sum of sums,
            # which waits for all its terms.
            return compiled(_sum)(total, part), None

        return (tf.identity(value), tf.identity(weight)), gradients

    return joined


def shared_use(
    weight: Tensor, value: Tensor, is_last: bool
) -> tuple[Tensor, Tensor]:
    """Returns a shared weight's value for one use, and the weight for the next.

    The gradients of the uses are added one by one in the backward pass, in
    the weight's type, instead of being kept until the last is there. (12
    layers of width 512, 2 x 128 tokens, float32: 54 % more memory without;
    the time is the same.)

    Args:
        weight: the matrix, as the use before returned it.
        value: the same in the type in which it is used.
        is_last: whether there is no next use.
    """
    if keras.backend.backend() != "tensorflow":
        # Cast anew: the parts of one value would be added in its type.
        return keras.ops.cast(weight, value.dtype), weight
    return _shared_use(is_last)(weight, value)


def argmax(x: Tensor) -> Tensor:
    """Returns the index of the largest value in the last axis, int32.

    The first one on TensorFlow, where Keras makes copies in four passes to
    distinguish -0 from 0.
    """
    if keras.backend.backend() != "tensorflow" or _is_symbolic(x):
        return keras.ops.cast(keras.ops.argmax(x, axis=-1), "int32")
    import tensorflow as tf

    return tf.argmax(x, axis=-1, output_type=tf.int32)
