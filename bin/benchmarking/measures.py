"""Figures of rounds, and their table."""

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bin import command_line
from bin.benchmarking.workplace import Workplace


class Measured(NamedTuple):
    """A figure of one round."""

    name: str
    unit: str
    value: float


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of the work that can be measured on its own.

    `rounds(workplace, repeats)` gives the figures of every round. Figures
    that are compared come from the same round, so that what else the machine
    does strikes them alike.
    """

    name: str
    measures: str
    rounds: Callable[[Workplace, int], Iterator[Iterable[Measured]]]


def repeated(
    measure: Callable[[Workplace], Iterator[Measured]],
) -> Callable[[Workplace, int], Iterator[Iterable[Measured]]]:
    """Returns `Stage.rounds` of what measures one round."""
    return lambda place, repeats: (measure(place) for _ in range(repeats))


def run_stage(stage: Stage, place: Workplace, repeats: int) -> dict[str, Any]:
    """Returns what the stage measures, what it notes, and its figures.

    Of each the `values` of the rounds, their median, least and largest.
    """
    place.notes.clear()
    values: dict[tuple[str, str], list[float]] = {}
    for number, figures in enumerate(stage.rounds(place, repeats), start=1):
        place.say(f"{stage.name}: {number} of {repeats}")
        for name, unit, value in figures:
            values.setdefault((name, unit), []).append(value)
    return {
        "measures": stage.measures,
        "notes": list(place.notes),
        "results": [
            {
                "name": name,
                "unit": unit,
                "median": statistics.median(of_name),
                "min": min(of_name),
                "max": max(of_name),
                "values": of_name,
            }
            for (name, unit), of_name in values.items()
        ],
    }


def stage_table(results: Sequence[dict[str, Any]]) -> str:
    """Returns a stage's results as a table."""
    numbers = ("median", "min", "max")
    return command_line.format_table(
        [
            [m["name"], *(_digits(m[n]) for n in numbers), m["unit"]]
            for m in results
        ],
        ["", *numbers, "unit"],
    )


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
