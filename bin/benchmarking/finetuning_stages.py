"""The stages that measure fine-tuning: features, and batches by length."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from bin import command_line
from bin.benchmarking.machine import in_fresh_process
from bin.benchmarking.measures import Measured
from bin.benchmarking.workload import TaskWork
from bin.benchmarking.workplace import Workplace

if TYPE_CHECKING:
    from bin.benchmarking.finetuning_benchmark import FeatureTimes, Round

# What the time of features is told for.
_MANY = 10_000


def featurisation(place: Workplace) -> Iterator[Measured]:
    """Yields the figures of making features on one core."""
    measured, _ = in_fresh_process(
        place.cores[:1], _measure_features, place.task_work
    )
    for one in measured:
        place.say(f"{one.name}: {one.value:.4g} {one.unit}")
        yield one


def finetuning(place: Workplace, repeats: int) -> Iterator[Iterable[Measured]]:
    """Yields rounds of batches by length, and padded, by turns."""
    rounds, _ = in_fresh_process(
        place.cores, _measure_batches, place.task_work, repeats
    )
    yield from rounds


def _measure_features(task: TaskWork) -> list[Measured]:
    """Returns figures; they come from a fresh process."""
    command_line.load_tensorflow()
    from bin.benchmarking.finetuning_benchmark import measure_features

    return [
        one
        for job, times in measure_features(task).items()
        for one in _of_features(f"features for {job}", times)
    ]


def _of_features(name: str, times: "FeatureTimes") -> Iterator[Measured]:
    yield Measured(name, "examples/s", times.num_examples / times.seconds)
    yield Measured(name, "sequences/s", times.num_sequences / times.seconds)
    seconds = _MANY * times.seconds / times.num_examples
    yield Measured(f"{name}, of {_MANY:,} examples", "s", seconds)


def _measure_batches(task: TaskWork, repeats: int) -> list[list[Measured]]:
    """Returns rounds; they come from a fresh process."""
    command_line.load_tensorflow()
    from bin.benchmarking.finetuning_benchmark import measure_batches

    rounds = []
    for one in measure_batches(task, repeats):
        rounds.append(list(_of_round(one)))
        print(f"fine-tuning: {len(rounds)} of {repeats} are measured")
    return rounds


def _of_round(one: "Round") -> Iterator[Measured]:
    yield Measured("matrix multiplication", "GFLOP/s", one.ceiling / 1e9)
    for job, of_job in one.turns.items():
        rates = {}
        for padding, turn in of_job.items():
            name = f"{job}, {padding}"
            rates[padding] = turn.num_rows / turn.seconds
            yield Measured(name, "rows/s", rates[padding])
            unused = 100 * turn.padding
            yield Measured(f"{name}, tokens of padding", "%", unused)
            share = 100 * turn.flops / turn.seconds / one.ceiling
            yield Measured(name, "% of the ceiling", share)
        ratio = rates["by length"] / rates["padded"]
        yield Measured(f"{job}, by length to padded", "times", ratio)
