"""Dropout whose mask depends on the example alone.

Whether an element is dropped is a hash of (its example's key, the layer, its
position within the example): the same on any replica, in any micro-batch and in
a run that is restarted at a step; nothing has to be saved.
"""

import math

import keras
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.kernels import fused

# Constants of a 32-bit integer finaliser with full avalanche ("lowbias32",
# found by search: Wellons, 2018) and of the golden-ratio sequence.
_MULTIPLY_1, _MULTIPLY_2 = 0x7FEB352D, 0x846CA68B
_GOLDEN = 0x9E3779B9
# An element's number has this many bits for its column, and as many for its
# row. What they have beyond is hashed, since 32 bits do not hold it.
_ROW_BITS = 16


def _uint32(value: int) -> Tensor:
    return ops.convert_to_tensor(value & 0xFFFFFFFF, dtype="uint32")


def _low_bits(bits: Tensor) -> Tensor:
    """Returns uint32 values modulo 2^32.

    They are anyway, but on torch, which has no uint32: Keras computes in int64.
    """
    if keras.backend.backend() != "torch":
        return bits
    return ops.bitwise_and(bits, _uint32(-1))


def _avalanche(bits: Tensor) -> Tensor:
    """Returns uint32 values whose every bit depends on every bit given."""
    bits = _low_bits(bits)
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, _uint32(16)))
    bits = _low_bits(ops.multiply(bits, _uint32(_MULTIPLY_1)))
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, _uint32(15)))
    bits = _low_bits(ops.multiply(bits, _uint32(_MULTIPLY_2)))
    return ops.bitwise_xor(bits, ops.right_shift(bits, _uint32(16)))


def stream_keys(keys: Tensor | None, number: int) -> Tensor | None:
    """Returns new keys [batch] uint32, one stream per number, if any."""
    if keys is None:
        return None
    return _avalanche(ops.add(keys, _uint32((number + 1) * _GOLDEN)))


def example_keys(seed: int, step: Tensor, example_numbers: Tensor) -> Tensor:
    """Returns the keys [batch] uint32 of the examples with numbers [batch]."""
    step_key = _avalanche(
        ops.add(_avalanche(_uint32(seed)), ops.cast(step, "uint32"))
    )
    numbers = ops.multiply(
        ops.cast(example_numbers, "uint32"), _uint32(_GOLDEN)
    )
    return _avalanche(ops.bitwise_xor(step_key, _avalanche(numbers)))


def drawn_keys(batch: int, generator: keras.random.SeedGenerator) -> Tensor:
    """Returns random keys `[batch]` uint32, for training without a step."""
    return ops.cast(
        keras.random.randint((batch,), 0, 2**31 - 1, seed=generator), "uint32"
    )


def _unknown_zero(keys: Tensor) -> Tensor:
    """Returns a uint32 0 that no compiler knows before it sees the keys.

    A sum of constants would be stored in the program, one for every element of
    the array.
    """
    high_half = ops.right_shift(keys, _uint32(16))
    return ops.cast(ops.sum(ops.right_shift(high_half, _uint32(16))), "uint32")


def _numbered(numbers: Tensor, factor: int) -> Tensor:
    """Returns uint32 multiples of numbers, other ones from 2^16 on."""
    numbers, multiplier = ops.cast(numbers, "uint32"), _uint32(factor)
    high = ops.right_shift(numbers, _uint32(_ROW_BITS))
    # Multiplied too, since rows and columns would else be moved alike.
    return numbers * multiplier + _avalanche(high * multiplier)


def apply_dropout(
    rate: float, inputs: Tensor, keys: Tensor, rows: Tensor | None = None
) -> Tensor:
    """Returns `inputs` with elements set to 0, the others rescaled.

    `inputs` are `[batch, ..., width]`, `keys` `[batch]` uint32, and `rows`
    integers `[batch, ...]`, or `[1, ...]` for all: where the inputs are some
    rows of a larger array, their numbers in it, by which they are dropped.
    """
    shape = ops.shape(inputs)
    if rows is None:
        rows = ops.reshape(
            ops.arange(math.prod(shape[1:-1])), (1, *shape[1:-1])
        )
    # Number r * stride + c, multiplied in two parts, which are as small as the
    # sides of the array. Whatever the width of the array: it may be cut.
    row_part = _numbered(rows, _GOLDEN << _ROW_BITS)
    column_part = _numbered(ops.arange(shape[-1]), _GOLDEN)
    counter = (row_part + _unknown_zero(keys))[..., None] + column_part
    counter = ops.reshape(counter, (ops.shape(rows)[0], -1))
    bits = _avalanche(ops.bitwise_xor(ops.expand_dims(keys, 1), counter))
    keep = ops.reshape(bits, shape) >= _uint32(int(rate * 2**32))
    scale = ops.cast(1.0 / (1.0 - rate), inputs.dtype)
    # Zeros of the inputs' shape would be a constant of that size, which takes
    # memory while a program is built.
    return ops.where(keep, inputs * scale, ops.zeros((), inputs.dtype))


@keras.saving.register_keras_serializable(package="albert_tf")
class ExampleDropout(keras.layers.Layer):
    """Inverted dropout with a mask per example.

    The mask is a pure function of `keys` `[batch]` uint32; without, they are
    drawn from the layer's own seed generator (`Model.fit`).
    """

    def __init__(self, rate: float, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator() if rate else None
        self.built = True

    def call(
        self,
        inputs: Tensor,
        keys: Tensor | None = None,
        training: bool = False,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Returns `inputs`, in training with dropout."""
        if not training or not self.rate:
            return inputs
        mask_inputs = self.mask_inputs(ops.shape(inputs)[0], keys, rows)
        return fused(apply_dropout, self.rate)(inputs, *mask_inputs)

    def mask_inputs(
        self, batch: int, keys: Tensor | None, rows: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Returns the arguments of `apply_dropout` that decide the mask."""
        if keys is None:
            keys = drawn_keys(batch, self.seed_generator)
        return (keys,) if rows is None else (keys, rows)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "rate": self.rate}
