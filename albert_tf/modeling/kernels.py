"""Functions whose gradients TensorFlow takes in less time or memory.

An activation, a normalisation or a mask is a dozen small operations, each a
pass over memory, forward and backward. On TensorFlow XLA compiles such a chain,
once as it is and once with its gradient, which computes again what it needs. On
other backends a function is computed as it is, by `keras.ops`.

The blocks fuse such chains in training alone: in inference TensorFlow joins a
dense layer with its bias and activation by itself, which a compiled function
would prevent. Losses are computed here in both.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import KerasTensor as Tensor

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
if ON_TENSORFLOW:
    import tensorflow as tf


def of_tensors(function: Callable) -> Callable:
    """Returns `function` of tensors; variables are read before it is called.

    So a gradient tape records the reading, which it needs for their gradients.
    """

    @tf.autograph.experimental.do_not_convert
    def call(*arguments: object) -> Any:
        return function(*map(tf.convert_to_tensor, arguments))

    return call


@functools.cache
def compiled(function: Callable, *constants: object) -> Callable:
    """Returns `function` of constants and tensors by XLA, without gradient."""
    return _traced(functools.partial(function, *constants), xla=True)


@functools.cache
def traced(function: Callable, *constants: object) -> Callable:
    """Returns `function` of constants and tensors, traced once for each shape.

    A graph that calls it often is built in a fraction of the time, and runs the
    same operations: TensorFlow's graph optimizer puts them where the call is.
    """
    return _traced(functools.partial(function, *constants), xla=None)


def _traced(function: Callable, xla: bool | None) -> Callable:
    if not ON_TENSORFLOW:
        return function
    return of_tensors(tf.function(function, jit_compile=xla, autograph=False))


def value_and_gradients(
    function: Callable, gradient: Tensor, *arguments: Tensor
) -> tuple[Tensor, list[Tensor | None]]:
    """Returns the result and, of its gradient, that of each float argument."""
    floats = [x for x in arguments if x.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(floats)
        result = function(*arguments)
    gradients = iter(tape.gradient(result, floats, gradient))
    return result, [
        next(gradients) if x.dtype.is_floating else None for x in arguments
    ]


def gradients_of(
    function: Callable, gradient: Tensor, *arguments: Tensor
) -> list[Tensor | None]:
    """Returns the gradient of each float argument, None of the others."""
    return value_and_gradients(function, gradient, *arguments)[1]


@functools.cache
def fused(function: Callable, *constants: object) -> Callable:
    """Returns `function` of the constants and of tensors in one pass.

    `function` has one result, in `keras.ops`, and gets gradients for the
    arguments that are floats. The kernel serves all layers: XLA compiles it
    once for every shape.
    """
    forward = compiled(function, *constants)
    if not ON_TENSORFLOW:
        return forward
    backward = compiled(gradients_of, functools.partial(function, *constants))

    @of_tensors
    @tf.custom_gradient
    def fused_function(*arguments: tf.Tensor) -> tuple:
        return forward(*arguments), lambda g: backward(g, *arguments)

    return fused_function


def product(inputs: Tensor, weight: Tensor) -> Tensor:
    """Returns `inputs @ weight`, `[n, rows]` by `[rows, columns]`.

    The gradient of the inputs multiplies by the transposed weight; in float32
    on a CPU it is a third faster after a transposition where there are more
    columns than rows. (base, 4 x 128 tokens, float32: a step takes 4 % longer
    without.)
    """
    rows, columns = weight.shape
    if not ON_TENSORFLOW or weight.dtype != "float32" or columns <= rows:
        return keras.ops.matmul(inputs, weight)

    @of_tensors
    @tf.custom_gradient
    def matmul(inputs: tf.Tensor, weight: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> tuple:
            # Otherwise the weight is transposed at the start, and kept.
            with tf.control_dependencies([gradient]):
                # Compiled: TensorFlow's graph optimizer would undo it.
                transposed = compiled(tf.transpose)(weight)
            of_weight = tf.matmul(inputs, gradient, transpose_a=True)
            # Otherwise a single thread goes on to earlier layers first, and
            # keeps both factors of this product.
            with tf.control_dependencies([of_weight]):
                return tf.matmul(gradient, transposed), of_weight

        return tf.matmul(inputs, weight), gradients

    return matmul(inputs, weight)


@functools.cache
def with_gradient(function: Callable, gradient: Callable) -> Callable:
    """Returns `function` of tensors, with `gradient` in the backward pass.

    `function` returns its result, and then what its gradient needs. `gradient`
    takes the result's gradient, the tensors and these values, and returns the
    gradients of the first tensors; the others have none.
    """
    forward = compiled(function)
    if not ON_TENSORFLOW:
        return lambda *arguments: forward(*arguments)[0]

    @of_tensors
    @tf.custom_gradient
    def with_own_gradient(*arguments: tf.Tensor) -> tuple:
        # Otherwise a tape would ask for the gradient of the function's own
        # operations, which may have none.
        result, *needed = forward(*map(tf.stop_gradient, arguments))

        def gradients(of_result: tf.Tensor) -> list:
            first = compiled(gradient)(of_result, *arguments, *needed)
            return [*first, *[None] * (len(arguments) - len(first))]

        return result, gradients

    return with_own_gradient


def states_at(hidden: Tensor, positions: Tensor) -> Tensor:
    """Returns `[batch, n, H]` of `[batch, seq, H]` at `[batch, n]`."""
    if not ON_TENSORFLOW:
        positions = keras.ops.expand_dims(positions, -1)
        return keras.ops.take_along_axis(hidden, positions, axis=1)
    return tf.gather(hidden, positions, batch_dims=1)


def accumulate(total: Tensor, part: Tensor) -> Tensor:
    """Returns the sum in the type of its first term."""
    return total + keras.ops.cast(part, total.dtype)


def chain_gradients(
    weight: Tensor, value: Tensor, is_last: bool
) -> tuple[Tensor, Tensor]:
    """Returns a shared weight's value for one use, and the weight for the next.

    In the backward pass the sum of later uses' gradients comes back through the
    returned weight, and this use's is added to it, in the weight's type. So no
    gradient is kept until the last is there. (12 layers of width 512, 2 x 128
    tokens, float32: 54 % more memory without; the time is the same.)

    Args:
        weight: the matrix, as the use before returned it.
        value: the same in the type in which it is used.
        is_last: whether there is no next use.
    """
    if not ON_TENSORFLOW:
        # Cast anew: the parts of one value would be added in its type.
        return keras.ops.cast(weight, value.dtype), weight

    @tf.custom_gradient
    def use(weight: tf.Tensor, value: tf.Tensor) -> tuple:
        def gradients(part: tf.Tensor, total: tf.Tensor) -> tuple:
            if is_last:
                return tf.cast(part, weight.dtype), None
            # Compiled: TensorFlow's graph optimizer makes one sum of sums,
            # which waits for all its terms.
            return compiled(accumulate)(total, part), None

        return (tf.identity(value), tf.identity(weight)), gradients

    return use(weight, value)


def to_dense(gradient: Any) -> Tensor:
    """Returns a gradient as a tensor.

    (That of an embedding is on TensorFlow a list of rows, IndexedSlices.)
    """
    return tf.convert_to_tensor(gradient) if ON_TENSORFLOW else gradient


def argmax(x: Tensor) -> Tensor:
    """Returns the index of the largest value in the last axis, int32.

    (On TensorFlow Keras makes copies in four passes to tell -0 from 0.)
    """
    if not ON_TENSORFLOW:
        return keras.ops.cast(keras.ops.argmax(x, axis=-1), "int32")
    # Logits are made as rows: XLA for TPUs copies them into another shape.
    rows = tf.reshape(x, (-1, x.shape[-1]))
    indices = tf.argmax(rows, axis=-1, output_type=tf.int32)
    return tf.reshape(indices, keras.ops.shape(x)[:-1])
