"""The moving average of weights, against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.optim.moving_average import MovingAverage


def walk(steps, seed=0):
    """Weights after each update."""
    return np.random.default_rng(seed).normal(size=(steps, 3)).astype("float32")


def numpy_averages(start, weights, decay):
    average = start.astype("float64")
    for n, weight in enumerate(weights):
        d = min(decay, (1 + n) / (10 + n))
        average = d * average + (1 - d) * weight
        yield average


@pytest.mark.parametrize("decay", [0.05, 0.3, 0.999])
def test_averages_equal_numpy(decay):
    weights = walk(30)
    variable = keras.Variable(np.ones(3), name="w")
    average = MovingAverage([variable], decay)
    np.testing.assert_array_equal(average.averages[0], np.ones(3))
    expected = numpy_averages(np.ones(3), weights, decay)

    @tf.function
    def update(n):
        average.update_step(average.averages[0], variable, n)

    for n, (weight, value) in enumerate(zip(weights, expected, strict=True)):
        variable.assign(weight)
        update(tf.constant(n))
        np.testing.assert_allclose(
            average.averages[0], value, rtol=2e-5, atol=1e-6
        )


def test_constant_weights_equal_their_average_exactly():
    variable = keras.Variable(walk(1)[0], name="w")
    average = MovingAverage([variable], 0.9999)
    for n in range(20):
        average.update_step(average.averages[0], variable, n)
    np.testing.assert_array_equal(average.averages[0], variable)


def test_averages_replace_the_weights_within_the_context():
    first = keras.Variable(walk(1)[0], dtype="bfloat16", name="a")
    second = keras.Variable(walk(1, seed=1)[0], name="b")
    before = [np.array(first), np.array(second)]
    average = MovingAverage([first, second], 0.9)
    assert [a.dtype for a in average.averages] == ["float32", "float32"]
    assert not any(a.trainable for a in average.averages)
    average.averages[1].assign([1, 2, 3])
    with pytest.raises(KeyError), average.in_place():
        np.testing.assert_array_equal(second, [1, 2, 3])
        raise KeyError
    for variable, value in zip((first, second), before, strict=True):
        np.testing.assert_array_equal(np.array(variable), value)
    assert len({a.path for a in average.averages}) == 2
