"""When a loss is a spike."""

import math

import numpy as np

from albert_tf.training.running_statistics import SpikeDetector


def test_the_limit_is_so_many_deviations_above_the_mean():
    watch = SpikeDetector(6.0)
    losses = np.random.default_rng(1).normal(5.0, 0.1, 300)
    for number, loss in enumerate(losses):
        # Of fewer than 32 the spread says little.
        assert math.isinf(watch.limit()) == (number < 32)
        watch.add(float(loss))
    last = losses[-128:]
    assert len(watch.losses) == 128
    assert math.isclose(watch.limit(), last.mean() + 6 * last.std())


def test_a_restored_watch_has_the_same_limit():
    watch = SpikeDetector(3.0)
    for loss in range(40):
        watch.add(float(loss))
    assert SpikeDetector(3.0, watch.losses).limit() == watch.limit()


def test_no_false_alarm_in_a_thousand_steps():
    rng = np.random.default_rng(2)
    watch = SpikeDetector(6.0)
    for step in range(1000):
        loss = float(10 * math.exp(-step / 300) + rng.normal(0, 0.2))
        assert loss <= watch.limit()
        watch.add(loss)
    assert 20 * loss > watch.limit()


def test_off_it_keeps_nothing():
    watch = SpikeDetector(0.0)
    for _ in range(200):
        watch.add(1.0)
    assert watch.losses == []
    assert math.isinf(watch.limit())
