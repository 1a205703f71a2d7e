"""Fused kernels for training: chains of small operations in few passes.

An activation, a normalisation or a mask is a dozen small operations, each a
pass over memory, forward and backward. On TensorFlow XLA compiles such a chain,
once as it is and once with its gradient, which computes again what it needs. On
other backends every kernel is the plain function of `keras.ops`.

Not in inference: there TensorFlow joins a dense layer with its bias and
activation by itself, which a compiled function would prevent.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import KerasTensor as Tensor

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
if ON_TENSORFLOW:
    import tensorflow as tf


def _of_tensors(function: Callable) -> Callable:
    """Returns a function that reads variables first, where a tape sees it."""

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
    return _of_tensors(tf.function(function, jit_compile=xla, autograph=False))


def _recomputed(
    function: Callable, gradient: Tensor, *arguments: Tensor
) -> tuple[Tensor, list[Tensor | None]]:
    """Returns the result and, of its gradient, that of each float argument."""
    floats = [x for x in arguments if x.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(floats)
        result = function(*arguments)
    found = iter(tape.gradient(result, floats, gradient))
    return result, [
        next(found) if x.dtype.is_floating else None for x in arguments
    ]


def _gradients(
    function: Callable, gradient: Tensor, *arguments: Tensor
) -> list[Tensor | None]:
    return _recomputed(function, gradient, *arguments)[1]


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
    backward = compiled(_gradients, functools.partial(function, *constants))

    @_of_tensors
    @tf.custom_gradient
    def joined(*arguments: tf.Tensor) -> tuple:
        return forward(*arguments), lambda g: backward(g, *arguments)

    return joined


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

    @_of_tensors
    @tf.custom_gradient
    def joined(inputs: tf.Tensor, weight: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> tuple:
            # Otherwise the weight is transposed at the start, and kept.
            with tf.control_dependencies([gradient]):
                # Compiled: TensorFlow's graph optimizer would undo it.
                transposed = compiled(tf.transpose)(weight)
            return (
                tf.matmul(gradient, transposed),
                tf.matmul(inputs, gradient, transpose_a=True),
            )

        return tf.matmul(inputs, weight), gradients

    return joined(inputs, weight)


@functools.cache
def recomputed_product(function: Callable, *constants: object) -> Callable:
    """Returns `function(...) @ weight` as a function of weight and tensors.

    The result of `function`, `[n, rows]`, is not kept for the gradient: the
    pass that computes the gradients of its tensors computes it again.
    (small, 32 x 128 tokens, bfloat16: 30 % more memory without; 12 layers of
    width 512, 2 x 128 tokens, float32: 13 % more.)
    """
    forward = compiled(function, *constants)

    def plain(weight: object, *arguments: object) -> object:
        return keras.ops.matmul(forward(*arguments), weight)

    if not ON_TENSORFLOW:
        again = keras.remat(plain)
        return lambda *given: again(*map(keras.ops.convert_to_tensor, given))
    backward = compiled(_recomputed, functools.partial(function, *constants))

    @_of_tensors
    @tf.custom_gradient
    def joined(weight: tf.Tensor, *arguments: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> tuple:
            result, found = backward(
                tf.matmul(gradient, weight, transpose_b=True), *arguments
            )
            return tf.matmul(result, gradient, transpose_a=True), *found

        return plain(weight, *arguments), gradients

    return joined


def _zero_after(gradient: Tensor) -> Tensor:
    """Returns a False, and 0, that is known only when the gradient is.

    No number is both finite and infinite, which neither TensorFlow's graph
    optimizer nor XLA finds out.
    """
    # A sum, since there may be no rows.
    first = tf.reduce_sum(tf.reshape(gradient, [-1])[:1])
    return tf.math.is_finite(first) & tf.math.is_inf(first)


def rematerialized(
    function: Callable, weights: Sequence[Tensor], *inputs: Tensor
) -> Tensor:
    """Returns `function(*weights, *inputs)`, computed again for its gradient.

    Not before the gradient of the result is there, whoever orders the work:
    until then nothing but weights and inputs is kept. (`tf.recompute_grad`, on
    which `keras.remat` relies, adds a dependence that XLA for TPUs removes:
    the second computation then becomes the first.)

    Args:
        function: of float tensors.
        weights: what is differentiated beside the inputs.
        inputs: on which all that takes memory depends.
    """
    if not ON_TENSORFLOW:
        return keras.remat(function)(*weights, *inputs)

    @_of_tensors
    @tf.custom_gradient
    def joined(*arguments: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> list[Tensor | None]:
            zero = _zero_after(gradient)
            late = [
                x + tf.cast(zero, x.dtype) for x in arguments[len(weights) :]
            ]
            return _gradients(
                function, gradient, *arguments[: len(weights)], *late
            )

        return function(*arguments), gradients

    return joined(*weights, *inputs)


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

    @_of_tensors
    @tf.custom_gradient
    def joined(*arguments: tf.Tensor) -> tuple:
        # Otherwise a tape would ask for the gradient of the function's own
        # operations, which may have none.
        result, *needed = forward(*map(tf.stop_gradient, arguments))

        def gradients(found: tf.Tensor) -> list:
            first = compiled(gradient)(found, *arguments, *needed)
            return [*first, *[None] * (len(arguments) - len(first))]

        return result, gradients

    return joined


def by_blocks(function: Callable, blocks: Tensor, *shared: Tensor) -> Tensor:
    """Returns `function(number, block, *shared)` of all blocks, stacked.

    One block after the other, forward and backward: nothing that is computed of
    a block is kept while the next is. The gradient computes it again, in a
    loop of its own, so that no compiler can keep it either.

    Args:
        function: its result has the shape and type of a block.
        blocks: `[num_blocks, ...]`.
        shared: float tensors that every block needs.
    """
    num_blocks = blocks.shape[0]
    numbers = keras.ops.arange(num_blocks, dtype="int32")
    if not ON_TENSORFLOW:
        return keras.ops.map(
            lambda of: keras.remat(functools.partial(function, of[0]))(
                of[1], *shared
            ),
            (numbers, blocks),
        )

    @_of_tensors
    @tf.custom_gradient
    def joined(blocks: tf.Tensor, *shared: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> list[tf.Tensor]:
            return _gradients_by_blocks(function, gradient, blocks, *shared)

        return tf.map_fn(
            lambda number: function(number, blocks[number], *shared),
            numbers,
            parallel_iterations=1,
            fn_output_signature=blocks.dtype,
        ), gradients

    return joined(blocks, *shared)


def _gradients_by_blocks(
    function: Callable, gradient: Tensor, blocks: Tensor, *shared: Tensor
) -> list[Tensor]:
    """Returns the gradients of `by_blocks` by its tensors."""
    num_blocks = blocks.shape[0]

    def add(
        number: Tensor, found: tf.TensorArray, *sums: Tensor
    ) -> tuple[Any, ...]:
        of_block, *parts = _gradients(
            functools.partial(function, number),
            gradient[number],
            blocks[number],
            *shared,
        )
        return (
            number + 1,
            found.write(number, of_block),
            *map(_sum, sums, parts),
        )

    # Many parts are added, so in no less than float32.
    wide = [keras.backend.result_type(x.dtype, "float32") for x in shared]
    _, found, *sums = tf.while_loop(
        lambda number, *_: number < num_blocks,
        add,
        (
            tf.constant(0),
            tf.TensorArray(blocks.dtype, num_blocks),
            *(
                tf.zeros_like(x, dtype)
                for x, dtype in zip(shared, wide, strict=True)
            ),
        ),
        parallel_iterations=1,
        maximum_iterations=num_blocks,
    )
    totals = [tf.cast(s, x.dtype) for s, x in zip(sums, shared, strict=True)]
    return [found.stack(), *totals]


def states_at(hidden: Tensor, positions: Tensor) -> Tensor:
    """Returns `[batch, n, H]` of `[batch, seq, H]` at `[batch, n]`."""
    if not ON_TENSORFLOW:
        positions = keras.ops.expand_dims(positions, -1)
        return keras.ops.take_along_axis(hidden, positions, axis=1)
    return tf.gather(hidden, positions, batch_dims=1)


def _sum(total: Tensor, part: Tensor) -> Tensor:
    """Returns the sum in the type of its first term."""
    return total + keras.ops.cast(part, total.dtype)


def shared_use(
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
    def joined(weight: tf.Tensor, value: tf.Tensor) -> tuple:
        def gradients(part: tf.Tensor, total: tf.Tensor) -> tuple:
            if is_last:
                return tf.cast(part, weight.dtype), None
            # Compiled: TensorFlow's graph optimizer makes one sum of sums,
            # which waits for all its terms.
            return compiled(_sum)(total, part), None

        return (tf.identity(value), tf.identity(weight)), gradients

    return joined(weight, value)


def dense(gradient: Any) -> Tensor:
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
    # Of rows, as logits are made: XLA for TPUs copies them into another shape.
    rows = tf.reshape(x, (-1, x.shape[-1]))
    found = tf.argmax(rows, axis=-1, output_type=tf.int32)
    return tf.reshape(found, keras.ops.shape(x)[:-1])
