"""Rounds in which sides take turns, and the table of what they measured.

The speed of a machine drifts by more than libraries differ. So all sides of a
stage take one turn in every round, and ratios are taken within a round.
"""

import concurrent.futures
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from benchmarks.workspace import Workspace
from bin import command_line

# A turn returns its measurements by name; the name ends with the unit.
Turn = Callable[[], Mapping[str, float]]
Result = TypeVar("Result")


class Stage(NamedTuple):
    """A part of the benchmark, measured in a process of its own.

    Attributes:
        description: for people, without a full stop.
        sides: returns the sides by name, warmed up; all are compared with the
            first.
        needs: attributes of the workspace, made before the process starts.
    """

    description: str
    sides: Callable[[Workspace], dict[str, Turn]]
    needs: tuple[str, ...] = ()


def run_stage(
    stage: Stage, workspace: Workspace, repeats: int
) -> list[dict[str, Any]]:
    """Returns a row for each measurement of each side, as JSON holds it."""
    for name in stage.needs:
        getattr(workspace, name)
    rounds = in_fresh_process(
        workspace.cores, _rounds, stage.sides, workspace, repeats
    )
    return list(_rows(rounds))


def in_fresh_process(
    cores: Sequence[int], function: Callable[..., Result], *args: object
) -> Result:
    """Returns the result of `function` in a fresh process pinned to `cores`."""
    before = os.sched_getaffinity(0)
    # The process starts with this thread's cores, and NumPy's threads too.
    os.sched_setaffinity(0, cores)
    try:
        with concurrent.futures.ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn")
        ) as pool:
            return pool.submit(function, *args).result()
    finally:
        os.sched_setaffinity(0, before)


def _rounds(
    make_sides: Callable[[Workspace], dict[str, Turn]],
    workspace: Workspace,
    repeats: int,
) -> list[dict[str, Mapping[str, float]]]:
    """Returns the measurements of each round by side, in the sides' order."""
    sides = make_sides(workspace)
    rounds = []
    for number in range(repeats):
        # A steady drift of the machine's speed favours no side.
        order = list(sides)[:: -1 if number % 2 else 1]
        turns = {name: sides[name]() for name in order}
        rounds.append({name: turns[name] for name in sides})
        command_line.log(f"{number + 1} of {repeats} rounds")
    return rounds


def _rows(
    rounds: Sequence[Mapping[str, Mapping[str, float]]],
) -> Iterator[dict[str, Any]]:
    first, *_ = rounds[0]
    for measure in dict.fromkeys(
        n for side in rounds[0].values() for n in side
    ):
        for side, measured in rounds[0].items():
            if measure not in measured:
                continue
            values = [turns[side][measure] for turns in rounds]
            ratios = []
            if side != first and measure in rounds[0][first]:
                ratios = [
                    turns[side][measure] / turns[first][measure]
                    for turns in rounds
                ]
            yield {
                "measure": measure,
                "side": side,
                "values": values,
                "ratios": ratios,
            }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns medians with their range, beside the ratios to the first side."""
    lines = [
        [
            row["measure"],
            row["side"],
            *_summary(row["values"]),
            *_summary(row["ratios"]),
        ]
        for row in rows
    ]
    header = [
        *("measure", "side", "median", "range"),
        *(f"to {rows[0]['side']}", "range"),
    ]
    return command_line.format_table(lines, header)


def _summary(values: Sequence[float]) -> tuple[str, str]:
    if not values:
        return "", ""
    least, most = map(_digits, (min(values), max(values)))
    return _digits(statistics.median(values)), f"{least} to {most}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def seconds_of(call: Callable[..., object], *args: object) -> float:
    """Returns the seconds that a call takes."""
    begin = time.perf_counter()
    call(*args)
    return time.perf_counter() - begin


def mean_seconds(call: Callable[[], object], at_least: float) -> float:
    """Returns the mean seconds of at least three calls, repeated as long."""
    count, begin = 0, time.perf_counter()
    while count < 3 or time.perf_counter() - begin < at_least:
        call()
        count += 1
    return (time.perf_counter() - begin) / count
