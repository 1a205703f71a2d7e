"""Chains of small operations, trained with few passes over memory.

An activation, a normalisation or a mask is a dozen small operations, and
training runs over memory for each of them, forward and backward. Where Keras
runs on TensorFlow such a chain is compiled by XLA, once as it is and once with
its gradient, which computes again what it needs: nothing but the arguments is
kept. What has a gradient of its own here holds less, or for a shorter time.
Other backends call the same in `keras.ops`.

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


@functools.cache
def with_gradient(function: Callable, gradient: Callable) -> Callable:
    """Returns the function of tensors that gives `function`'s first result.

    Args:
        function: of tensors; gives a result, and all that `gradient` needs.
        gradient: of the result's gradient, what it needs and the tensors;
            gives the gradient of the first of them. The others have none.
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
        if any(map(keras.backend.is_keras_tensor, arguments)):
            return function(*arguments)[0]
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


def _product_with_transposed(gradient: object, weight: object) -> object:
    """Returns `gradient @ transposed weight`, what a product's inputs get.

    In float32 on a CPU this product is a third slower than the forward one
    where there are more columns than rows: there the weight is transposed
    before, which takes a quarter of what that saves. (Compiled, so that
    TensorFlow's graph optimizer does not join the two again.)
    """
    import tensorflow as tf

    if not _has_slow_gradient(weight):
        return tf.matmul(gradient, weight, transpose_b=True)
    # Or all blocks' would be transposed at the start, and held.
    with tf.control_dependencies([gradient]):
        columns_first = compiled(tf.transpose)(weight)
    return tf.matmul(gradient, columns_first)


def _has_slow_gradient(weight: object) -> bool:
    rows, columns = weight.shape
    return weight.dtype == "float32" and columns > rows


@functools.cache
def _product() -> Callable:
    if keras.backend.backend() != "tensorflow":
        return keras.ops.matmul
    import tensorflow as tf

    @tf.custom_gradient
    def joined(inputs: tf.Tensor, weight: tf.Tensor) -> tuple:
        def gradients(gradient: tf.Tensor) -> tuple:
            return (
                _product_with_transposed(gradient, weight),
                tf.matmul(inputs, gradient, transpose_a=True),
            )

        return tf.matmul(inputs, weight), gradients

    @tf.autograph.experimental.do_not_convert
    def call(inputs: object, weight: object) -> tf.Tensor:
        weight = tf.convert_to_tensor(weight)
        if _has_slow_gradient(weight):
            return joined(inputs, weight)
        return tf.matmul(inputs, weight)

    return call


def product(
    inputs: keras.KerasTensor, weight: keras.KerasTensor
) -> keras.KerasTensor:
    """Returns `inputs @ weight`, `[n, rows]` by `[rows, columns]`."""
    return _product()(inputs, weight)


@functools.cache
def product_of(function: Callable, *constants: object) -> Callable:
    """Returns the function of a weight and tensors `function(...) @ weight`.

    What `function` gives, `[n, rows]`, is not kept for the gradient: the pass
    that computes the gradients of its tensors gives it again.

    Args:
        function: of the constants, then of tensors of floats, in `keras.ops`.
        *constants: its first arguments, hashable.
    """
    forward = compiled(function, *constants)

    def plain(weight: object, *arguments: object) -> object:
        return product(forward(*arguments), weight)

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
                _product_with_transposed(gradient, weight), *arguments
            )
            return tf.matmul(result, gradient, transpose_a=True), *found

        return plain(weight, *arguments), gradients

    @tf.autograph.experimental.do_not_convert
    def call(weight: object, *arguments: object) -> tf.Tensor:
        if any(map(keras.backend.is_keras_tensor, (weight, *arguments))):
            return keras.ops.matmul(function(*arguments), weight)
        return joined(*map(tf.convert_to_tensor, (weight, *arguments)))

    return call


@functools.cache
def _softmax() -> Callable:
    if keras.backend.backend() != "tensorflow":
        return keras.ops.softmax
    import tensorflow as tf

    @tf.custom_gradient
    def joined(logits: tf.Tensor) -> tuple:
        probs = tf.nn.softmax(logits)

        def gradients(gradient: tf.Tensor) -> tf.Tensor:
            gradient = gradient * probs
            total = tf.reduce_sum(gradient, axis=-1, keepdims=True)
            return gradient - probs * total

        return probs, gradients

    def call(logits: object) -> tf.Tensor:
        if keras.backend.is_keras_tensor(logits):
            return keras.ops.softmax(logits)
        return joined(tf.convert_to_tensor(logits))

    return call


def softmax(logits: keras.KerasTensor) -> keras.KerasTensor:
    """Returns softmax over the last axis.

    On TensorFlow its gradient is written so that every step has a term that
    is not used again, and takes its memory: by (g - sum(g p)) p three
    matrices would be there at once.
    """
    return _softmax()(logits)


def argmax(x: keras.KerasTensor) -> keras.KerasTensor:
    """Returns the index of the largest value in the last axis, int32.

    The first one on TensorFlow, where Keras makes copies in four passes to
    tell -0 from 0.
    """
    if keras.backend.backend() != "tensorflow" or keras.backend.is_keras_tensor(
        x
    ):
        return keras.ops.cast(keras.ops.argmax(x, axis=-1), "int32")
    import tensorflow as tf

    return tf.argmax(x, axis=-1, output_type=tf.int32)
