"""Stragglers are reported."""

import tensorflow as tf

from albert_tf.cluster import stragglers
from albert_tf.cluster.stragglers import Stragglers, slow_workers


def test_a_slow_worker_and_one_with_slow_data():
    assert slow_workers([1.0, 1.2, 3.0, 0.9], [0.0] * 4) == {
        "work of 2": "Worker 2 of 4 takes 3.0 times as long as the others for "
        "the same work, and all wait for it."
    }
    assert slow_workers([1.0] * 3, [0.02, 0.02, 0.4]) == {
        "data of 2": "Worker 2 of 3 spends 40% of its time waiting for its "
        "data (the others 2%), and all wait for it."
    }
    both = slow_workers([1.0, 3.0], [0.5, 0.0])
    assert set(both) == {"work of 1", "data of 0"}


def test_normal_variation_is_not_reported():
    assert not slow_workers([1.0, 1.2, 0.9], [0.09, 0.0, 0.0])
    # All wait alike: data are slow, and no worker is.
    assert not slow_workers([1.0] * 3, [0.5, 0.6, 0.5])


def test_only_workers_that_are_slow_twice_in_a_row(monkeypatch):
    alone = Stragglers(tf.distribute.get_strategy(), "float32")
    assert not alone.compare(0.5)
    monkeypatch.setattr(stragglers, "is_alone", lambda strategy: False)
    monkeypatch.setattr(stragglers, "small_work_seconds", lambda dtype: 1.0)
    times = iter([[1, 1, 3], [0] * 3, [1, 2, 1], [0] * 3, [1, 2, 1], [0] * 3])
    given = []

    def all_gather(strategy, value):
        given.append(value)
        return next(times)

    monkeypatch.setattr(stragglers, "all_gather", all_gather)
    watch = Stragglers(tf.distribute.get_strategy(), "float32")
    assert not watch.compare(0.5)
    assert not watch.compare(0.25)
    (line,) = watch.compare(0.0)
    assert line.startswith("Worker 1 of 3 takes 2.0 times")
    # What this worker itself gives: its work, and the share it waited.
    assert given[:4] == [1.0, 0.5, 1.0, 0.25]
