"""The peak FLOP/s of this machine, measured by matrix multiplication."""

import statistics
import time

import tensorflow as tf

# The first width, and the feed-forward width as a multiple of it. No power of
# two: rows that lie so far apart share few places of a CPU's cache (1,024 x
# 4,096 had half the rate on AMD EPYC, and models a rate above this "peak").
_WIDTH, _WIDER = 768, 4
_RUNS = 5
# Shorter products are dominated by the call: a faster device gets a larger one.
_MIN_SECONDS = 2e-3
_MAX_WIDTH = 12288
# Products of some milliseconds on two cores, repeated to average over
# interruptions.
_SMALL = 512
_SMALL_WORK_SECONDS = 0.3


def matmul_rate(dtype: str) -> float:
    """Returns the median FLOP/s of products [H, H] x [H, 4 H].

    On the default device; about a quarter of a second on two cores.
    """
    width = _WIDTH
    while True:
        seconds = statistics.median(_product_times(width, dtype))
        if seconds >= _MIN_SECONDS or width >= _MAX_WIDTH:
            return 2 * width * width * _WIDER * width / seconds
        width *= 2


def small_work_seconds(dtype: str) -> float:
    """Returns the mean seconds of small products on the default device."""
    begin, runs = time.perf_counter(), 0
    seconds = 0.0
    while seconds < _SMALL_WORK_SECONDS:
        _product_times(_SMALL, dtype)
        runs += 1
        seconds = time.perf_counter() - begin
    return seconds / runs


def _product_times(width: int, dtype: str) -> list[float]:
    left = tf.random.stateless_normal((width, width), (1, 2), dtype=dtype)
    right = tf.random.stateless_normal(
        (width, _WIDER * width), (3, 4), dtype=dtype
    )
    seconds = []
    # The first is a warm-up.
    for _ in range(1 + _RUNS):
        begin = time.perf_counter()
        # Reading an entry waits for the device.
        float(tf.matmul(left, right)[0, 0])
        seconds.append(time.perf_counter() - begin)
    return seconds[1:]
