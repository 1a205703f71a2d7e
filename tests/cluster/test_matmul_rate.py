"""Peak FLOP/s from timed matrix products."""

import pytest
import tensorflow as tf

from albert_tf.cluster import matmul_rate as ceiling


def test_the_rate_uses_the_median_time(monkeypatch):
    dtype = "bfloat16"
    made = []
    multiply = tf.matmul

    def matmul(left, right):
        made.append((left, right))
        return multiply(left, right)

    # The first product, which nothing should be read of, and one of the
    # others take long.
    lasting = iter([9.0, 0.5, 0.3, 7.0, 0.4, 0.6])
    times = iter([t for seconds in lasting for t in (0.0, seconds)])
    monkeypatch.setattr(ceiling.tf, "matmul", matmul)
    monkeypatch.setattr(ceiling.time, "perf_counter", lambda: next(times))
    rate = ceiling.matmul_rate(dtype)
    assert len(made) == 6
    for left, right in made:
        assert left.dtype == right.dtype == dtype
        (rows, inner), (_, columns) = left.shape, right.shape
        assert columns == 4 * inner
        # Rows of a power of 2 would share places of the cache.
        assert columns & (columns - 1)
        assert rate == pytest.approx(2 * rows * inner * columns / 0.5)


def test_small_work_is_averaged(monkeypatch):
    # Held up once: it counts, divided by all.
    times = iter([10.0, 10.05, 10.25, 10.4])
    monkeypatch.setattr(ceiling, "_product_times", lambda *given: None)
    monkeypatch.setattr(ceiling.time, "perf_counter", lambda: next(times))
    assert ceiling.small_work_seconds("float32") == pytest.approx(0.4 / 3)


def test_a_fast_device_gets_larger_products(monkeypatch):
    asked = []

    def seconds(width, dtype):
        asked.append(width)
        return [2 * width * width * 4 * width / 1e15]

    monkeypatch.setattr(ceiling, "_product_times", seconds)
    assert ceiling.matmul_rate("bfloat16") == pytest.approx(1e15)
    assert asked == [768, 1536, 3072, 6144, 12288]
