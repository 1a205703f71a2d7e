"""Functions whose backward pass computes again what it needs.

TensorFlow keeps every value that a gradient needs from the forward pass to the
backward one. Here a function's inputs are kept alone: those of a block, of its
attention, of a product, or of attention in chunks. On other backends
`keras.remat` does the same.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
from keras import KerasTensor as Tensor

from albert_tf.modeling.kernels import (
    ON_TENSORFLOW,
    accumulate,
    compiled,
    gradients_of,
    of_tensors,
    value_and_gradients,
)

if ON_TENSORFLOW:
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.python import xla


@functools.cache
def recomputed_product(function: Callable, *constants: object) -> Callable:
    """Returns `function(...) @ weight` as a function of weight and tensors.

    The result of `function`, `[n, rows]`, is not kept for the gradient: the
    pass that computes the gradients of its tensors computes it again.
    (small, 32 x 128 tokens, bfloat16: 30 % more memory without; 12 layers of
    width 512, 2 x 128 tokens, float32: 13 % more; base, 64 x 512, bfloat16, a
    whole step on an H200: 49 % more, since XLA keeps the activation's tanh.)
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
        _recomputed_with_gradients, functools.partial(function, *constants)
    )

    @of_tensors
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


def _recomputed_with_gradients(
    function: Callable, gradient: Tensor, *arguments: Tensor
) -> tuple[Tensor, list[Tensor | None]]:
    """Returns `value_and_gradients`, of arguments behind a barrier.

    A compiler of the whole step would otherwise make one of this computation
    and of the forward pass's, and keep its values. (XLA for CPUs does.)
    """
    gradient, *arguments = xla.optimization_barrier(gradient, *arguments)
    return value_and_gradients(function, gradient, *arguments)


def recomputed(
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

    @of_tensors
    @tf.custom_gradient
    def checkpointed(*arguments: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> list[Tensor | None]:
            zero = _zero_after(gradient)
            late = [
                x + tf.cast(zero, x.dtype) for x in arguments[len(weights) :]
            ]
            found = gradients_of(
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


def _zero_after(gradient: Tensor) -> Tensor:
    """Returns False, which as a number is 0, but not before the gradient.

    No number is both finite and infinite, which neither TensorFlow's graph
    optimizer nor XLA finds out; so neither makes it a constant.
    """
    # A sum, since there may be no rows.
    first = tf.reduce_sum(tf.reshape(gradient, [-1])[:1])
    return tf.math.is_finite(first) & tf.math.is_inf(first)


def _identity(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else tf.identity(gradient)


def variables_as(
    values: Iterable[tuple[keras.Variable, Tensor]],
) -> keras.StatelessScope:
    """Returns a context in which layers find tensors in place of variables."""
    scope = keras.StatelessScope()
    for variable, value in values:
        # The constructor would cast them back to the variables' types.
        scope.add_update((variable, value))
    return scope


def recomputed_layer(layer: keras.layers.Layer) -> Callable:
    """Returns `layer`, computed again in the backward pass (checkpointing).

    Of the layer's outputs only the first is returned, the other is None: an
    unused result would get a gradient of zeros. Positional arguments are
    differentiated, named ones are constants.
    """
    # The gradient is taken by nothing but arguments.
    floats = [
        variable
        for variable in layer.weights
        if keras.backend.is_float_dtype(variable.dtype)
    ]

    def call(*inputs: Tensor, **constants: object) -> tuple[Tensor, None]:
        def first_output(*arguments: Tensor) -> Tensor:
            values = arguments[: len(floats)]
            with variables_as(zip(floats, values, strict=True)):
                return layer(*arguments[len(floats) :], **constants)[0]

        values = [variable.value for variable in floats]
        return recomputed(first_output, values, *inputs), None

    return call


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

    @of_tensors
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
        of_chunk, *parts = gradients_of(
            functools.partial(function, number),
            gradient[number],
            chunks[number],
            *shared,
        )
        return (
            number + 1,
            gradients.write(number, of_chunk),
            *map(accumulate, sums, parts),
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
