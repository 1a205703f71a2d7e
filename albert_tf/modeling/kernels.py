"""Functions whose gradients TensorFlow takes in less time or memory.

An activation, a normalisation or a mask is a dozen small operations, each a
pass over memory, forward and backward. On TensorFlow XLA compiles such a chain,
once as it is and once with its gradient, which computes again what it needs. On
other backends a function is computed as it is, by `keras.ops`, with
`keras.remat` where its values are not to be kept.

The blocks fuse such chains in training alone: in inference TensorFlow joins a
dense layer with its bias and activation by itself, which a compiled function
would prevent. Losses and attention in chunks are computed here in both.
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
    return _of_tensors(tf.function(function, jit_compile=xla, autograph=False))


def _value_and_gradients(
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


def _gradients(
    function: Callable, gradient: Tensor, *arguments: Tensor
) -> list[Tensor | None]:
    return _value_and_gradients(function, gradient, *arguments)[1]


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

    @_of_tensors
    @tf.custom_gradient
    def matmul(inputs: tf.Tensor, weight: tf.Tensor) -> tuple:
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

    return matmul(inputs, weight)


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
        remat = keras.remat(plain)
        return lambda *arguments: remat(
            *map(keras.ops.convert_to_tensor, arguments)
        )
    backward = compiled(
        _value_and_gradients, functools.partial(function, *constants)
    )

    @_of_tensors
    @tf.custom_gradient
    def checkpointed(weight: tf.Tensor, *arguments: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> tuple:
            result, of_arguments = backward(
                tf.matmul(gradient, weight, transpose_b=True), *arguments
            )
            of_weight = tf.matmul(result, gradient, transpose_a=True)
            return of_weight, *of_arguments

        return plain(weight, *arguments), gradients

    return checkpointed


def _zero_after(gradient: Tensor) -> Tensor:
    """Returns False, which as a number is 0, but not before the gradient.

    No number is both finite and infinite, which neither TensorFlow's graph
    optimizer nor XLA finds out; so neither makes it a constant.
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
    def checkpointed(*arguments: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> list[Tensor | None]:
            zero = _zero_after(gradient)
            late = [
                x + tf.cast(zero, x.dtype) for x in arguments[len(weights) :]
            ]
            found = _gradients(
                function, gradient, *arguments[: len(weights)], *late
            )
            of_weights, of_inputs = found[: len(weights)], found[len(weights) :]
            # A thread that goes on to other blocks first would keep what the
            # weights' gradients are made of.
            with tf.control_dependencies(
                [g for g in of_weights if g is not None]
            ):
                return [*of_weights, *map(_identity, of_inputs)]

        return function(*arguments), gradients

    return checkpointed(*weights, *inputs)


def _identity(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else tf.identity(gradient)


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
    def with_own_gradient(*arguments: tf.Tensor) -> tuple:
        # Otherwise a tape would ask for the gradient of the function's own
        # operations, which may have none.
        result, *needed = forward(*map(tf.stop_gradient, arguments))

        def gradients(of_result: tf.Tensor) -> list:
            first = compiled(gradient)(of_result, *arguments, *needed)
            return [*first, *[None] * (len(arguments) - len(first))]

        return result, gradients

    return with_own_gradient


def map_chunks(function: Callable, chunks: Tensor, *shared: Tensor) -> Tensor:
    """Returns `function(number, chunk, *shared)` of all chunks, stacked.

    One chunk after the other, forward and backward: nothing that is computed of
    a chunk is kept while the next is. The gradient computes it again, in a
    loop of its own, so that no compiler can keep it either.

    Args:
        function: its result has the shape and type of a chunk.
        chunks: `[num_chunks, ...]`.
        shared: float tensors that every chunk needs.
    """
    num_chunks = chunks.shape[0]
    numbers = keras.ops.arange(num_chunks, dtype="int32")
    if not ON_TENSORFLOW:
        return keras.ops.map(
            lambda numbered: keras.remat(
                functools.partial(function, numbered[0])
            )(numbered[1], *shared),
            (numbers, chunks),
        )

    @_of_tensors
    @tf.custom_gradient
    def mapped(chunks: tf.Tensor, *shared: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> list[tf.Tensor]:
            return _gradients_by_chunks(function, gradient, chunks, *shared)

        return tf.map_fn(
            lambda number: function(number, chunks[number], *shared),
            numbers,
            parallel_iterations=1,
            fn_output_signature=chunks.dtype,
        ), gradients

    return mapped(chunks, *shared)


def _gradients_by_chunks(
    function: Callable, gradient: Tensor, chunks: Tensor, *shared: Tensor
) -> list[Tensor]:
    """Returns the gradients of `map_chunks` by its tensors."""
    num_chunks = chunks.shape[0]

    def add(
        number: Tensor, gradients: tf.TensorArray, *sums: Tensor
    ) -> tuple[Any, ...]:
        of_chunk, *parts = _gradients(
            functools.partial(function, number),
            gradient[number],
            chunks[number],
            *shared,
        )
        return (
            number + 1,
            gradients.write(number, of_chunk),
            *map(_sum, sums, parts),
        )

    # Many parts are added, so in no less than float32.
    wide = [keras.backend.result_type(x.dtype, "float32") for x in shared]
    _, gradients, *sums = tf.while_loop(
        lambda number, *_: number < num_chunks,
        add,
        (
            tf.constant(0),
            tf.TensorArray(chunks.dtype, num_chunks),
            *(
                tf.zeros_like(x, dtype)
                for x, dtype in zip(shared, wide, strict=True)
            ),
        ),
        parallel_iterations=1,
        maximum_iterations=num_chunks,
    )
    totals = [tf.cast(s, x.dtype) for s, x in zip(sums, shared, strict=True)]
    return [gradients.stack(), *totals]


def states_at(hidden: Tensor, positions: Tensor) -> Tensor:
    """Returns `[batch, n, H]` of `[batch, seq, H]` at `[batch, n]`."""
    if not ON_TENSORFLOW:
        positions = keras.ops.expand_dims(positions, -1)
        return keras.ops.take_along_axis(hidden, positions, axis=1)
    return tf.gather(hidden, positions, batch_dims=1)


def _sum(total: Tensor, part: Tensor) -> Tensor:
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
            return compiled(_sum)(total, part), None

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
