"""Detection of stragglers: workers that slow the others down.

All workers wait for the slowest, so step times are equal. Compared are the
times for the same small computation, and for waiting for data.
"""

import statistics
from collections.abc import Sequence

import tensorflow as tf

from albert_tf.cluster.distribution import all_gather, is_alone
from albert_tf.cluster.matmul_rate import small_work_seconds

# Factor to the median of the others, twice in a row.
_SLOWER = 1.5
# Allowed share of time that a worker waits for its data.
_WAITING_SHARE = 0.1


class Stragglers:
    """Compares the workers of a job from time to time."""

    def __init__(self, strategy: tf.distribute.Strategy, dtype: str) -> None:
        self._strategy = strategy
        self._dtype = dtype
        self._slow_before: set[str] = set()

    def compare(self, waiting: float) -> list[str]:
        """Returns a line for each worker that was slow twice in a row.

        `waiting` is the share of time that this one waited for its data. All
        workers must call it, equally often.
        """
        if is_alone(self._strategy):
            return []
        lines = slow_workers(
            all_gather(self._strategy, small_work_seconds(self._dtype)),
            all_gather(self._strategy, waiting),
        )
        slow_twice = [
            line for who, line in lines.items() if who in self._slow_before
        ]
        self._slow_before = set(lines)
        return slow_twice


def slow_workers(
    seconds: Sequence[float], waiting: Sequence[float]
) -> dict[str, str]:
    """Returns a message for each slow worker, by its cause.

    `seconds` are for the same work; `waiting` the shares of time spent waiting.
    """
    lines = {}
    count = len(seconds)
    for number, mine in enumerate(seconds):
        ratio = mine / _median_of_others(seconds, number)
        if ratio >= _SLOWER:
            lines[f"work of {number}"] = (
                f"Worker {number} of {count} takes {ratio:.1f} times as long "
                "as the others for the same work, and all wait for it."
            )
    for number, mine in enumerate(waiting):
        usual = _median_of_others(waiting, number)
        if mine >= _WAITING_SHARE and mine >= _SLOWER * usual:
            lines[f"data of {number}"] = (
                f"Worker {number} of {count} spends {mine:.0%} of its time "
                f"waiting for its data (the others {usual:.0%}), and all wait "
                "for it."
            )
    return lines


def _median_of_others(values: Sequence[float], number: int) -> float:
    return statistics.median([*values[:number], *values[number + 1 :]])
