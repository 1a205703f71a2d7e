"""Parts of a run: which batches, and how many layers, at which step."""

import bisect
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from albert_tf.config import UserError
from albert_tf.inputs.input_pipeline import Batch


class Source(Protocol):
    """Batches by step (see input_pipeline.py)."""

    batch_size: int

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """Returns rows of the global batch of a step."""

    def record_numbers(self, step: int) -> np.ndarray:
        """Returns the numbers of the records of a step."""

    def record_name(self, number: int) -> str:
        """Returns where a record lies, for messages."""


@dataclasses.dataclass(frozen=True)
class DataPosition:
    """Where in its data a run is.

    Attributes:
        step: steps made before.
        passed_over: batches that roll-backs have left out.
    """

    step: int
    passed_over: int = 0


class Phases:
    """Sources that are read one after another, each from its beginning.

    Attributes:
        sources: one for each phase.
        starts: the step at which each phase starts.
    """

    def __init__(self, sources: Sequence[Source], steps: Sequence[int]) -> None:
        self.sources = list(sources)
        self.starts = [0, *itertools.accumulate(steps)][: len(sources)]

    def number(self, step: int) -> int:
        """Returns the number of the phase of a step."""
        return bisect.bisect_right(self.starts, step) - 1

    def source(self, step: int) -> Source:
        """Returns the source of a step."""
        return self.sources[self.number(step)]

    def batch(self, place: DataPosition, rows: range) -> Batch:
        """Returns rows of the global batch at a place."""
        return self.source(place.step).batch(self._step(place), rows)

    def record_numbers(self, place: DataPosition) -> np.ndarray:
        """Returns the numbers of the records at a place."""
        return self.source(place.step).record_numbers(self._step(place))

    def record_names(self, place: DataPosition) -> list[str]:
        """Returns where the records at a place lie, for messages."""
        name = self.source(place.step).record_name
        return [name(int(number)) for number in self.record_numbers(place)]

    def _step(self, place: DataPosition) -> int:
        """Returns the step as its source counts."""
        start = self.starts[self.number(place.step)]
        return place.step - start + place.passed_over


class DepthSchedule:
    """How many of the model's blocks are applied from which step on.

    Attributes:
        starts: the steps at which that changes.
    """

    def __init__(self, text: str, num_applications: int) -> None:
        """Reads `0:3,2000:6`: three at first, six from step 2,000 on.

        Args:
            text: see there; empty: all, always.
            num_applications: that the model has.

        Raises:
            UserError: for anything else.
        """
        self.starts: list[int] = []
        self._depths: list[int | None] = []
        for part in filter(None, text.split(",")):
            start, _, depth = part.partition(":")
            if not (start.strip().isdecimal() and depth.strip().isdecimal()):
                raise UserError(
                    f"depth_schedule={text!r}: {part!r} is not of the form "
                    "step:layers, such as 2000:6."
                )
            self.starts.append(int(start))
            self._depths.append(int(depth))
            if not 1 <= int(depth) <= num_applications:
                raise UserError(
                    f"depth_schedule={text!r}: {part!r} asks for {depth} "
                    f"layers; the model has {num_applications}."
                )
        if text and (
            self.starts[:1] != [0] or sorted(set(self.starts)) != self.starts
        ):
            raise UserError(
                f"depth_schedule={text!r} must start with step 0, and its "
                "steps must rise."
            )
        if not text:
            self.starts, self._depths = [0], [None]

    def at(self, step: int) -> int | None:
        """Returns how many blocks a step applies; None: all."""
        return self._depths[bisect.bisect_right(self.starts, step) - 1]


def numbers_of(name: str, text: str, count: int) -> list[int]:
    """Returns `count` numbers from 1, from a list separated by commas.

    Raises:
        UserError: naming the setting, when they are not.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != count or not all(
        part.isdecimal() and int(part) for part in parts
    ):
        raise UserError(
            f"{name}={text!r} must be a whole number from 1 for each of the "
            f"{count} directories of shards, separated by commas."
        )
    return [int(part) for part in parts]
