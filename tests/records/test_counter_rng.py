import math

import numpy as np
import pytest

from albert_tf.records import counter_rng


def test_random_bits_are_splitmix64():
    # The first outputs of splitmix64 with seed 1234567, as published with
    # the reference implementation.
    bits = counter_rng.random_bits(1234567, np.arange(5))
    assert bits.tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_recorded_values_stay():
    key = counter_rng.key(12345, "document", -1)
    assert int(key) == 97892635358129031
    assert int(counter_rng.fold_in(key, 7)[0]) == 7123560181834549564
    assert counter_rng.uniforms(key, 2)[0].tolist() == [
        0.617788106790764,
        0.20693635388436182,
    ]
    shuffled = counter_rng.shuffled_position(np.arange(10), 10, key)
    assert shuffled.tolist() == [1, 0, 9, 6, 5, 4, 8, 2, 7, 3]


def test_other_parts_give_other_keys():
    parts = [(), (1,), (1, 2), (2, 1), (12,), (-1,), (2**64 - 1,)]
    parts += [("1",), ("1", "2"), ("12",), ("1", "", "2"), ("é",), ("e\u0301",)]
    assert len({int(counter_rng.key(*p)) for p in parts}) == len(parts)


def test_keys_that_numpy_would_round_are_refused():
    with pytest.raises(TypeError, match="float64 holds no 64-bit integers"):
        counter_rng.fold_in([1, 2**63 + 1], 0)


def test_a_longer_row_begins_with_the_shorter_one():
    keys = counter_rng.fold_in(counter_rng.key("rows"), np.arange(5))
    long, short = counter_rng.uniforms(keys, 9), counter_rng.uniforms(keys, 4)
    np.testing.assert_array_equal(long[:, :4], short)
    np.testing.assert_array_equal(counter_rng.uniform_at(keys, 7), long[:, 7])
    np.testing.assert_array_equal(counter_rng.uniforms(keys[3], 9)[0], long[3])


def test_uniforms_are_uniform_and_uncorrelated():
    keys = counter_rng.fold_in(counter_rng.key("statistics"), np.arange(1000))
    draws = counter_rng.uniforms(keys, 1000)
    assert draws.min() >= 0.0 and draws.max() < 1.0
    # A mean of 1e6 draws has the standard deviation 1/sqrt(12e6) = 2.9e-4.
    assert abs(draws.mean() - 0.5) < 4 * 2.9e-4
    counts = np.bincount((draws.ravel() * 256).astype(int), minlength=256)
    chi_square = np.sum((counts - 1e6 / 256) ** 2) / (1e6 / 256)
    assert abs(chi_square - 255) < 4 * math.sqrt(2 * 255)
    centred = draws - 0.5
    along_rows = 12 * np.mean(centred[:, 1:] * centred[:, :-1])
    along_keys = 12 * np.mean(centred[1:] * centred[:-1])
    assert abs(along_rows) < 4e-3 and abs(along_keys) < 4e-3


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 1023, 4097])
def test_shuffled_position_is_a_permutation(size):
    key = counter_rng.key("permutation", size)
    positions = counter_rng.shuffled_position(np.arange(size), size, key)
    assert sorted(positions.tolist()) == list(range(size))


def test_neighbours_are_sent_to_unrelated_places():
    size = 100_003
    key = counter_rng.key("neighbours", size)
    positions = counter_rng.shuffled_position(np.arange(size), size, key)
    correlation = np.corrcoef(positions[1:], positions[:-1])[0, 1]
    assert abs(correlation) < 4 / math.sqrt(size)
    steps = np.diff(positions) % size
    counts = np.bincount(steps * 256 // size, minlength=256)
    expected = np.diff(-(-np.arange(257) * size // 256))
    chi_square = np.sum((counts - expected) ** 2 / expected)
    assert abs(chi_square - 255) < 5 * math.sqrt(2 * 255)
