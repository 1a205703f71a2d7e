"""The loop of the benchmark: sides take turns, repeated, and are compared.

The speed of a machine drifts by more than libraries differ. So all sides of
a stage take one turn in every round, and ratios are taken within a round.
"""

import functools
import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from albert_tf.config import require
from bin import command_line
from bin.benchmarking import machine
from bin.benchmarking.workspace import Workspace

# By the name of the side.
Turns = Mapping[Any, Any]
# A number of one round: its name, unit and value.
Measurement = tuple[str, str, float]

# The side that measures the machine's FLOP/s.
CEILING = "matrix multiplication"


class Stage:
    """A part of the benchmark, measured on the inputs of a workspace.

    Attributes:
        name: on the command line.
        description: for people, without a full stop.
        needs: inputs of the workspace, made before the stage goes to its own
            process.
        fresh_process: whether the stage is measured in a process of its own,
            which loads TensorFlow; a stage without starts its own.
        max_cores: of that process; None: all.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    fresh_process: ClassVar[bool] = True
    max_cores: ClassVar[int | None] = None

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def check(self) -> None:
        """Raises UserError for what this machine lacks."""

    def sides(self) -> dict[Any, Callable[[], Any]]:
        """Returns what takes turns, warmed up: calls that return a turn."""
        raise NotImplementedError

    def select(self, rounds: list[Turns]) -> list[Turns]:
        """Returns the rounds with the turns that are reported."""
        return rounds

    def measurements(self, turns: Turns) -> Iterable[Measurement]:
        """Returns the measurements of one round: by default its turns."""
        return itertools.chain.from_iterable(turns.values())

    def notes(self, turns: Turns) -> list[str]:
        """Returns sentences that explain the measurements."""
        return []

    def ceiling(self) -> dict[Any, Callable[[], float]]:
        """Returns the side CEILING, at the precision of the workspace."""
        from albert_tf.cluster.matmul_rate import matmul_rate

        precision = self.workspace.work.training.precision
        return {CEILING: functools.partial(matmul_rate, precision)}


def seconds_of(call: Callable[..., object], *args: object) -> float:
    begin = time.perf_counter()
    call(*args)
    return time.perf_counter() - begin


def require_packages(who: str, packages: Iterable[str]) -> None:
    """Raises UserError for packages that are not installed."""
    missing = [p for p in packages if importlib.util.find_spec(p) is None]
    require(
        not missing,
        f"{who} needs {' and '.join(missing)}, not installed here: pip install "
        "-r requirements-parity.txt.",
    )


def measure(
    stage: Stage, repeats: int
) -> tuple[list[list[Measurement]], list[str]]:
    """Returns the measurements of every round, and notes."""
    if stage.fresh_process:
        command_line.load_tensorflow()
    sides = stage.sides()
    rounds: list[Turns] = []
    for number in range(repeats):
        # A steady drift of the machine's speed favours no side.
        order = list(sides)[:: -1 if number % 2 else 1]
        turns = {name: sides[name]() for name in order}
        rounds.append({name: turns[name] for name in sides})
        command_line.log(f"{stage.name}: {number + 1} of {repeats}")
    rounds = stage.select(rounds)
    measured = [list(stage.measurements(turns)) for turns in rounds]
    return measured, stage.notes(rounds[0])


def run_stage(stage: Stage, repeats: int) -> dict[str, Any]:
    """Returns a stage's description, notes and results, as JSON holds them.

    A result has the `values` of the rounds, their median, least and largest.
    """
    for name in stage.needs:
        getattr(stage.workspace, name)
    if stage.fresh_process:
        cores = stage.workspace.cores[: stage.max_cores]
        rounds, notes = machine.in_fresh_process(cores, measure, stage, repeats)
    else:
        rounds, notes = measure(stage, repeats)
    values: dict[tuple[str, str], list[float]] = {}
    for name, unit, value in itertools.chain.from_iterable(rounds):
        values.setdefault((name, unit), []).append(value)
    return {
        "measures": stage.description,
        "notes": notes,
        "results": [
            {
                "name": name,
                "unit": unit,
                "median": statistics.median(repeated),
                "min": min(repeated),
                "max": max(repeated),
                "values": repeated,
            }
            for (name, unit), repeated in values.items()
        ],
    }


def stage_table(results: Sequence[dict[str, Any]]) -> str:
    numbers = ("median", "min", "max")
    rows = [
        [row["name"], *(_digits(row[n]) for n in numbers), row["unit"]]
        for row in results
    ]
    return command_line.format_table(rows, ["", *numbers, "unit"])


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
