"""ExampleDropout: rates, and masks as a function of the example."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import hashed

from albert_tf.config import ModelConfig
from albert_tf.modeling.dropout import (
    ExampleDropout,
    apply_dropout,
    example_keys,
    stream_keys,
)
from albert_tf.modeling.encoder import AlbertEncoder

ONES = np.ones((8, 6, 50), "float32")


def keys_of(seed=1, step=2, numbers=range(8)):
    return example_keys(seed, step, np.array(list(numbers)))


def dropped(keys, rate=0.5, inputs=ONES, dtype=None):
    layer = ExampleDropout(rate, dtype=dtype)
    return layer(inputs, keys=keys, training=True)


def mask(keys):
    return np.asarray(dropped(keys)) != 0


def assert_independent(a, b):
    """Fails where masks of rate 0.5 agree more or less often than by chance."""
    # Four standard deviations of a mean of so many fair coins.
    assert abs((a == b).mean() - 0.5) < 4 * 0.5 / np.sqrt(a.size)


@pytest.mark.parametrize(
    "keys",
    [
        keys_of(seed=2),
        keys_of(step=3),
        keys_of(seed=2, step=1),
        keys_of(numbers=range(1, 9)),
        keys_of(numbers=range(1 << 20, (1 << 20) + 8)),
        stream_keys(keys_of(), 0),
        stream_keys(stream_keys(keys_of(), 0), 0),
        stream_keys(stream_keys(keys_of(), 1), 0),
        stream_keys(keys_of(), 1 << 20),
    ],
)
def test_another_seed_step_example_or_stream_is_another_mask(keys):
    assert_independent(mask(keys), mask(keys_of()))


def test_examples_streams_and_positions_are_masked_independently():
    whole = mask(keys_of())
    for shift in range(1, 8):
        assert_independent(whole, np.roll(whole, shift, axis=0))
    streams = [mask(stream_keys(keys_of(), stream)) for stream in range(12)]
    for a, first in enumerate(streams):
        for second in streams[:a]:
            assert_independent(first, second)
    flat = whole.reshape(8, -1)
    for lag in (1, 2, 8, 50):
        assert_independent(flat[:, lag:], flat[:, :-lag])


@pytest.mark.parametrize("read_positions", [None, np.int32([[0, 4]] * 8)])
def test_masks_do_not_depend_on_the_width_of_the_batch(read_positions):
    # Sums of another length round otherwise: with some weights beyond 1e-5.
    keras.utils.set_random_seed(1)
    config = ModelConfig(
        vocab_size=12,
        embedding_size=4,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=9,
        hidden_dropout_prob=0.5,
        attention_probs_dropout_prob=0.5,
        initializer_range=0.5,
    )
    encoder = AlbertEncoder(config)

    def states(width):
        ids = np.zeros((8, width), np.int32)
        ids[:, :5] = np.arange(40).reshape(8, 5) % 12
        real = np.broadcast_to(np.arange(width) < 5, ids.shape)
        encoded = encoder(
            {
                "input_ids": ids,
                "input_mask": real.astype(np.int32),
                "segment_ids": np.zeros_like(ids),
            },
            dropout_keys=keys_of(),
            training=True,
            read_positions=read_positions,
        )
        if read_positions is not None:
            return np.asarray(encoded["read_output"])
        return np.asarray(encoded["sequence_output"])[:, :5]

    np.testing.assert_allclose(states(9), states(5), atol=1e-5)


def expected_mask(keys, rows, columns):
    """What a rate of 0.5 keeps, in NumPy, where no number reaches 2^16."""
    rows = np.array(rows, np.uint32)[:, None] << np.uint32(16)
    counter = (rows + np.arange(columns, dtype=np.uint32)) * np.uint32(
        0x9E3779B9
    )
    bits = hashed(np.asarray(keys)[:, None, None] ^ counter)
    return bits >= np.uint32(2**31)


def mask_of(rows, columns):
    inputs = np.ones((2, len(rows), columns), "float32")
    keys = keys_of(numbers=range(2))
    kept = apply_dropout(0.5, inputs, keys, rows=np.int32([rows]))
    return np.asarray(kept) != 0


def test_masks_below_65536_rows_and_columns_are_as_they_were():
    rows, keys = [0, 1, 12 * 512, 2**16 - 1], keys_of(numbers=range(2))
    for columns in (50, 2**16):
        np.testing.assert_array_equal(
            mask_of(rows, columns), expected_mask(keys, rows, columns)
        )


def test_masks_do_not_repeat_beyond_65536_rows_or_columns():
    rows = [n * 2**16 + row for n in range(4) for row in (0, 1)]
    masks = mask_of(rows, 2**16 + 5000)
    for a in range(len(rows)):
        for b in range(a):
            assert_independent(masks[:, a, :5000], masks[:, b, :5000])
        # The columns from 2^16 on are not those of the next row.
        for b in range(len(rows)):
            assert_independent(masks[:, a, 2**16 :], masks[:, b, :5000])


def test_keys_of_a_step_do_not_collide():
    for step in range(3):
        keys = np.asarray(keys_of(step=step, numbers=range(10_000)))
        assert keys.dtype == np.uint32
        assert len(set(keys.tolist())) == 10_000


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.9])
def test_the_share_dropped_is_the_rate_and_the_mean_stays(rate):
    inputs = np.ones((64, 4096), "float32")
    keys = keys_of(seed=2**31, step=7, numbers=range(64))
    result = np.asarray(dropped(keys, rate, inputs))
    # Four standard deviations of a share of n draws.
    bound = 4 * np.sqrt(rate * (1 - rate) / inputs.size)
    assert abs((result == 0).mean() - rate) < bound
    assert abs(result.mean() - 1) < bound / (1 - rate)
    assert np.allclose(result[result != 0], 1 / (1 - rate), rtol=1e-6)
    # And in every example, with its own bound.
    shares = (result == 0).mean(axis=1)
    assert np.abs(shares - rate).max() < bound * np.sqrt(64)


def test_the_type_stays_and_the_mask_too():
    kind = "bfloat16"
    result = dropped(keys_of(), 0.5, tf.cast(ONES, kind), kind)
    assert result.dtype == kind
    np.testing.assert_array_equal(
        tf.cast(result, "float32").numpy() != 0, mask(keys_of())
    )


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_compiled_graph_drops_the_same(jit_compile):
    layer = ExampleDropout(0.5)

    @tf.function(jit_compile=jit_compile)
    def run(step, inputs):
        keys = stream_keys(example_keys(1, step, tf.range(8)), 4)
        return layer(inputs, keys=keys, training=True)

    np.testing.assert_array_equal(
        run(tf.constant(2, tf.int64), ONES).numpy() != 0,
        mask(stream_keys(keys_of(), 4)),
    )


def test_without_keys_every_call_draws_anew():
    keras.utils.set_random_seed(0)
    layer = ExampleDropout(0.5)
    first, second = (
        np.asarray(layer(ONES, training=True)) != 0 for _ in range(2)
    )
    assert_independent(first, second)
    # No two examples of a call share a mask.
    assert_independent(first[0], first[1])


def test_the_numbers_of_elements_are_computed_not_stored():
    """A constant for each element would be most of a compiled program."""

    @tf.function(jit_compile=True)
    def drop(inputs, keys):
        return apply_dropout(0.1, inputs, keys)

    def program(*shape):
        inputs, keys = tf.ones(shape), tf.ones(shape[:1], tf.uint32)
        lower = drop.experimental_get_compiler_ir(inputs, keys)
        return lower(stage="stablehlo")

    def largest_constant(function, *shape):
        inputs = [tf.TensorSpec(shape), tf.TensorSpec(shape[:1], tf.uint32)]
        graph = function.get_concrete_function(*inputs).graph
        return max(
            math.prod(tensor.shape.as_list())
            for operation in graph.get_operations()
            if operation.type in ("Const", "ZerosLike", "Fill")
            for tensor in operation.outputs
        )

    # Zeros of the inputs' size would be folded into a constant while the
    # program is built, though not in what is built.
    assert largest_constant(drop, 4, 4, 16, 16) <= 4 * 16
    # The numbers of a row and a column are stored, in eight digits each.
    grown = len(program(4, 4, 128, 128)) - len(program(2, 2, 16, 16))
    assert grown < 8 * (4 * 128 + 128) + 1000
