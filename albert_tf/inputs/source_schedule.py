"""What a run reads at each step: sources of batches, one after another."""

import bisect
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.inputs.input_pipeline import Batch, PretrainingBatches
from albert_tf.inputs.length_buckets import TaskBatches

Source = PretrainingBatches | TaskBatches


class SourceSchedule:
    """Sources that are read one after another, each from its first step on.

    `passed_over` is the number of batches that roll-backs have left out.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        starts: Sequence[int],
        origins: Sequence[int] | None = None,
    ) -> None:
        """Reads each source from its beginning.

        With `origins` a source is read as if from that step on: it may continue
        the records of the one before, masked in another way.
        """
        self.starts = list(starts)
        self._sources = list(sources)
        self._origins = list(starts if origins is None else origins)

    def __iter__(self) -> Iterator[Source]:
        """Returns the sources in their order."""
        return iter(self._sources)

    def number(self, step: int) -> int:
        """Returns the number of the source of a step."""
        return bisect.bisect_right(self.starts, step) - 1

    def at(self, step: int) -> Source:
        """Returns the source of a step."""
        return self._sources[self.number(step)]

    def batch(self, step: int, passed_over: int, rows: range) -> Batch:
        """Returns rows of the global batch of a step."""
        within = self._step_of_source(step, passed_over)
        return self.at(step).batch(within, rows)

    def record_numbers(self, step: int, passed_over: int) -> np.ndarray:
        """Returns the numbers of the records of a step."""
        within = self._step_of_source(step, passed_over)
        return self.at(step).record_numbers(within)

    def record_names(self, step: int, passed_over: int) -> list[str]:
        """Returns the locations of the records of a step, for messages."""
        name = self.at(step).record_name
        numbers = self.record_numbers(step, passed_over)
        return [name(int(number)) for number in numbers]

    def _step_of_source(self, step: int, passed_over: int) -> int:
        return step - self._origins[self.number(step)] + passed_over
