"""The stages that measure data: made offline, and read for training."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from albert_tf.config import MaskingConfig
from bin import command_line
from bin.benchmarking.machine import in_fresh_process
from bin.benchmarking.measures import Measured
from bin.benchmarking.workplace import Workplace

if TYPE_CHECKING:
    from bin.benchmarking.build_benchmark import BuildTimes, StepTimes

_BATCH_SIZES = (64, 256)
_READING_SECONDS = 2.0


def data_preparation(place: Workplace) -> Iterator[Measured]:
    """Yields the figures of building records, by one worker and by two."""
    from bin.benchmarking.build_benchmark import measure_build, measure_steps

    def in_process(
        num_cores: int, function: Callable, **more: int
    ) -> tuple[Any, float]:
        with place.scratch() as directory:
            return in_fresh_process(
                place.cores[:num_cores],
                function,
                place.inputs,
                directory,
                tokenizer_dir=place.tokenizer_dir,
                config=place.config,
                masking=place.masking,
                **more,
            )

    jobs = {}
    for workers, name in ((1, "one worker"), (2, "two workers")):
        if len(place.cores) < workers:
            place.say(f"{name}: left out, this process may use one core.")
            continue
        times, whole = in_process(workers, measure_build, workers=workers)
        jobs[workers] = times
        place.say(f"{name}: {times.rate:.4g} instances/s")
        yield from _of_job(name, times)
        rate = times.num_instances / whole
        yield Measured(f"{name}, with start-up", "instances/s", rate)
        yield _of_ceiling(place, name, times.rate)
    if len(jobs) == 2:
        ratio = jobs[2].rate / jobs[1].rate
        yield Measured("two workers to one", "times", ratio)
        ratio = jobs[2].planned_rate / jobs[1].planned_rate
        yield Measured("two workers to one, once planned", "times", ratio)
    steps, _ = in_process(1, measure_steps)
    place.say(f"the steps alone: {steps.rate:.4g} instances/s")
    yield from _of_steps(steps)
    share = 100 * jobs[1].rate / steps.rate
    yield Measured("one worker, of what the steps allow", "%", share)
    share = 100 * jobs[1].planned_rate / steps.rate
    yield Measured("one worker, of that once planned", "%", share)


def _of_ceiling(place: Workplace, name: str, rate: float) -> Measured:
    times = rate / place.ceiling_sequences
    return Measured(f"{name}, to training at the ceiling", "times", times)


def _of_job(name: str, times: "BuildTimes") -> Iterator[Measured]:
    yield Measured(name, "instances/s", times.rate)
    text = times.text_bytes / times.seconds / 1e6
    yield Measured(f"{name}, of text", "MB/s", text)
    planned = f"{name}, once planned"
    yield Measured(planned, "instances/s", times.planned_rate)
    for phase in ("planning", "records", "shards"):
        yield Measured(f"{name}, {phase}", "s", getattr(times, phase))
    # Learning where sentences end takes one core, however many workers.
    share = 100 * times.planning / times.seconds
    yield Measured(f"{name}, planning of the whole", "%", share)
    yield Measured(f"{name}, peak memory", "MB", times.peak_bytes / 1e6)
    if of_worker := times.worker_peak_bytes:
        peak = f"{name}, peak memory of the larger"
        yield Measured(peak, "MB", of_worker / 1e6)


def _of_steps(steps: "StepTimes") -> Iterator[Measured]:
    total = sum(steps.seconds.values())
    for step, seconds in steps.seconds.items():
        rate = steps.num_instances / seconds
        yield Measured(f"{step} alone", "instances/s", rate)
        yield Measured(f"{step}, of the steps", "%", 100 * seconds / total)
    yield Measured("all steps alone", "instances/s", steps.rate)


def reading(place: Workplace) -> Iterator[Measured]:
    """Yields the figures of making batches out of records."""
    shards = {kind: place.shards(kind) for kind in ("dynamic", "static")}
    measured, _ = in_fresh_process(
        place.cores[:1], _read, shards, place.masking
    )
    for one in measured:
        yield one
        if one.unit == "sequences/s":
            place.say(f"{one.name}: {one.value:.4g} {one.unit}")
            yield _of_ceiling(place, one.name, one.value)


def _read(shards: dict[str, str], masking: MaskingConfig) -> list[Measured]:
    """Returns the figures of reading; they come from a fresh process.

    What it gives its parent must not make that load TensorFlow.
    """
    command_line.load_tensorflow()
    from bin.benchmarking.reading_benchmark import measure_reading

    times = measure_reading(
        shards, _BATCH_SIZES, masking_config=masking, seconds=_READING_SECONDS
    )
    measured = []
    for (kind, size), of_kind in times.items():
        name = f"{kind}, batches of {size}"
        rate = of_kind.num_sequences / of_kind.seconds
        measured.append(Measured(name, "sequences/s", rate))
        parts = {"reading": of_kind.reading, "parsing": of_kind.parsing}
        parts["masking" if kind == "dynamic" else "the rest"] = of_kind.rest
        for part, seconds in parts.items():
            share = 100 * seconds / of_kind.seconds
            measured.append(Measured(f"{name}, {part}", "%", share))
    return measured
