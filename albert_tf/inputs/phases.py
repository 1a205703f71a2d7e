"""Phases of a run: the batches and the number of layers at each step."""

import bisect
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from albert_tf.config import UserError, require
from albert_tf.inputs.input_pipeline import Batch, PretrainingBatches
from albert_tf.inputs.length_buckets import TaskBatches

Source = PretrainingBatches | TaskBatches
Value = TypeVar("Value")


class Phases:
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

        With `origins` a source is read as if from that step on: a phase may
        continue the records of the one before, masked in another way.
        """
        self.sources = list(sources)
        self.starts = list(starts)
        self._origins = list(starts if origins is None else origins)

    def number(self, step: int) -> int:
        """Returns the number of the phase of a step."""
        return bisect.bisect_right(self.starts, step) - 1

    def source(self, step: int) -> Source:
        """Returns the source of a step."""
        return self.sources[self.number(step)]

    def batch(self, step: int, passed_over: int, rows: range) -> Batch:
        """Returns rows of the global batch of a step."""
        within = self._step_of_source(step, passed_over)
        return self.source(step).batch(within, rows)

    def record_numbers(self, step: int, passed_over: int) -> np.ndarray:
        """Returns the numbers of the records of a step."""
        within = self._step_of_source(step, passed_over)
        return self.source(step).record_numbers(within)

    def record_names(self, step: int, passed_over: int) -> list[str]:
        """Returns the locations of the records of a step, for messages."""
        name = self.source(step).record_name
        numbers = self.record_numbers(step, passed_over)
        return [name(int(number)) for number in numbers]

    def _step_of_source(self, step: int, passed_over: int) -> int:
        return step - self._origins[self.number(step)] + passed_over


class DepthSchedule:
    """The number of the model's blocks that each step applies."""

    def __init__(self, text: str, num_applications: int) -> None:
        """Parses `0:3,2000:6`: three at first, six from step 2,000 on.

        An empty text is all, always. Raises UserError for an invalid schedule.
        """
        name = "depth_schedule"
        # The steps at which it changes.
        self.starts: list[int] = [0]
        self._depths: list[int | None] = [None]
        if text:
            schedule = parse_schedule(name, text, int, "2000:6")
            self.starts, self._depths = list(schedule), list(schedule.values())
        for depth in self._depths:
            require(
                depth is None or 1 <= depth <= num_applications,
                f"{name}={text!r} asks for {depth} layers; the model has "
                f"{num_applications}.",
            )

    def at(self, step: int) -> int | None:
        """Returns the number of blocks a step applies; None: all."""
        return self._depths[bisect.bisect_right(self.starts, step) - 1]


def parse_schedule(
    name: str, text: str, convert: Callable[[str], Value], example: str
) -> dict[int, Value]:
    """Returns the values of `0:3,2000:6` by the step from which each applies.

    `convert` makes a value of its text, or raises ValueError; `name` is that
    of the setting and `example` one part of it, for messages. Raises UserError
    for an invalid schedule.
    """
    steps: list[int] = []
    values: list[Value] = []
    for part in text.split(","):
        start, _, value = part.partition(":")
        try:
            steps.append(int(start))
            values.append(convert(value))
        except ValueError:
            raise UserError(
                f"{name}={text!r}: {part!r} is not of the form step:value, "
                f"such as {example}."
            ) from None
    require(
        steps[0] == 0 and sorted(set(steps)) == steps,
        f"{name}={text!r} must start with step 0, and its steps must rise.",
    )
    return dict(zip(steps, values, strict=True))


def numbers_of(name: str, text: str, count: int) -> list[int]:
    """Returns the `count` positive integers of a comma-separated setting."""
    parts = [part.strip() for part in text.split(",")]
    require(
        len(parts) == count and all(p.isdecimal() and int(p) for p in parts),
        f"{name}={text!r} must be a whole number from 1 for each of the "
        f"{count} directories of shards, separated by commas.",
    )
    return [int(part) for part in parts]
