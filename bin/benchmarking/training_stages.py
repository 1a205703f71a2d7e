"""The stages that measure training: its speed, its memory, its waiting."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from albert_tf.config import REMAT, MaskingConfig, override
from albert_tf.jobs.workload import Workload
from bin import command_line
from bin.benchmarking.machine import in_fresh_process
from bin.benchmarking.measures import Measured
from bin.benchmarking.peers import OURS, PEERS, SideKind, find_peers
from bin.benchmarking.workload import JOBS
from bin.benchmarking.workplace import Workplace

if TYPE_CHECKING:
    from bin.benchmarking.step_benchmark import Prepared, Round

_WAITING_SECONDS = 5.0
_MIB = 2**20


def training(place: Workplace, repeats: int) -> Iterator[Iterable[Measured]]:
    """Yields rounds of training steps and forward passes, side by side."""
    # A process that has done nothing else; all rounds are one process's.
    (notes, rounds), _ = in_fresh_process(
        place.cores,
        _measure_training,
        place.work,
        [peer.name for peer in place.peers],
        repeats,
    )
    for line in notes:
        place.note(line)
    yield from rounds


def _measure_training(
    work: Workload, peers: list[str], repeats: int
) -> tuple[list[str], list[list[Measured]]]:
    """Returns notes and rounds; they come from a fresh process."""
    command_line.load_tensorflow()
    from bin.benchmarking.step_benchmark import (
        fastest_variants,
        measure_rounds,
        prepare,
    )

    prepared = {
        kind.name: prepare(kind, work, say=_say)
        for kind in (OURS, *find_peers(peers))
    }
    rounds = []
    for one in measure_rounds(prepared, work.training.precision, repeats):
        rounds.append(one)
        _say(f"training: {len(rounds)} of {repeats} are measured")
    variants = fastest_variants(rounds)
    chosen = {
        job: {
            name: next(
                one for one in prepared[name][job] if one.variant == variant
            )
            for name, variant in sides.items()
        }
        for job, sides in variants.items()
    }
    notes = [
        f"{JOBS[job]}, {name}: {one.side.does[job]}."
        for job, sides in chosen.items()
        for name, one in sides.items()
    ]
    measured = [list(_of_round(one, work, variants)) for one in rounds]
    measured[0].extend(_first_calls(chosen))
    return notes, measured


def _say(line: str) -> None:
    print(line, flush=True)


def _of_round(
    one: "Round", work: Workload, variants: Mapping[str, Mapping[str, str]]
) -> Iterator[Measured]:
    yield Measured("matrix multiplication", "GFLOP/s", one.ceiling / 1e9)
    for job, sides in one.turns.items():
        turns = {name: sides[name][variants[job][name]] for name in sides}
        for name, turn in turns.items():
            what = f"{JOBS[job]}, {name}"
            rate = work.batch_size / turn.seconds
            yield Measured(what, "sequences/s", rate)
            yield Measured(what, "tokens/s", rate * work.seq_length)
            flops = turn.flops / turn.seconds
            yield Measured(what, "GFLOP/s", flops / 1e9)
            share = 100 * flops / one.ceiling
            yield Measured(what, "% of the ceiling", share)
        ours = turns[OURS.name].seconds
        for name, turn in turns.items():
            if name != OURS.name:
                what = f"{JOBS[job]}, ours to {name}"
                yield Measured(what, "times", turn.seconds / ours)


def _first_calls(
    chosen: Mapping[str, Mapping[str, "Prepared"]],
) -> Iterator[Measured]:
    for job, sides in chosen.items():
        for name, one in sides.items():
            what = f"{JOBS[job]}, {name}, first call"
            yield Measured(what, "s", one.first_seconds)


def memory(place: Workplace, repeats: int) -> Iterator[Iterable[Measured]]:
    """Yields rounds of peaks, each of a process of its own."""
    kinds = (OURS, *place.peers)
    variants = {}
    for kind in kinds:
        # Chosen in other processes than those that are measured.
        variants[kind.name], _ = in_fresh_process(
            place.cores, _fast_variants, kind.name, place.work
        )
        for does in variants[kind.name].values():
            place.note(f"{kind.name}: {does}.")
    for _ in range(repeats):
        yield _peaks(place, kinds, variants)


def _peaks(
    place: Workplace,
    kinds: Iterable[SideKind],
    variants: Mapping[str, Iterable[str]],
) -> Iterator[Measured]:
    peaks = {}
    for kind in kinds:
        of_kind = []
        for variant in variants[kind.name]:
            peak, _ = in_fresh_process(
                place.cores, _peak, kind.name, place.work, variant
            )
            of_kind.append(peak)
            said = f"{kind.name}, {variant}: {peak / _MIB:.0f} MiB resident"
            place.say(said)
        peaks[kind.name] = min(of_kind)
        peak = peaks[kind.name] / _MIB
        yield Measured(f"{kind.name}, resident at the peak", "MiB", peak)
    for name, peak in peaks.items():
        if name != OURS.name:
            ratio = peaks[OURS.name] / peak
            yield Measured(f"ours to {name}", "times", ratio)


def _kind(name: str) -> SideKind:
    return OURS if name == OURS.name else PEERS[name]


def _fast_variants(name: str, work: Workload) -> dict[str, str]:
    """Returns a side's variants that might be its fastest; what each does."""
    command_line.load_tensorflow()
    from bin.benchmarking.step_benchmark import prepare

    found = prepare(_kind(name), work, jobs=("train_step",), say=_say)
    return {
        one.variant: one.side.does["train_step"] for one in found["train_step"]
    }


def _peak(name: str, work: Workload, variant: str) -> int:
    """Returns bytes; they come from a fresh process."""
    if name != "transformers":
        command_line.load_tensorflow()
    from bin.benchmarking.step_memory import peak_of_side

    return peak_of_side(_kind(name), work, variant)


def recomputation(place: Workplace) -> Iterator[Measured]:
    """Yields the figures of keeping and of computing again."""
    steps = {}
    for remat in REMAT:
        work = dataclasses.replace(
            place.work, training=override(place.work.training, {"remat": remat})
        )
        steps[remat], _ = in_fresh_process(place.cores, _step_memory, work)
        tensors, resident, seconds, norm = steps[remat]
        place.say(f"remat {remat}: {tensors / _MIB:.0f} MiB of tensors")
        yield Measured(f"{remat}, tensors", "MiB", tensors / _MIB)
        yield Measured(f"{remat}, resident", "MiB", resident / _MIB)
        yield Measured(f"{remat}, step", "s", seconds)
        yield Measured(f"{remat}, gradient norm", "", norm)
    for remat in REMAT[1:]:
        for number, name in enumerate(("tensors", "resident memory", "time")):
            ratio = steps[remat][number] / steps["none"][number]
            yield Measured(f"{remat} to none, {name}", "times", ratio)


def _step_memory(work: Workload) -> tuple[float, ...]:
    """Returns a StepMemory's figures; they come from a fresh process."""
    # TensorFlow's allocator that counts, with a bound beyond any machine.
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(1 << 24)
    command_line.load_tensorflow()
    from bin.benchmarking.step_memory import measure_step

    return tuple(measure_step(work))


def data_wait(place: Workplace, repeats: int) -> Iterator[Iterable[Measured]]:
    """Yields rounds of training on records that are read meanwhile."""
    rounds, _ = in_fresh_process(
        place.cores,
        _measure_waiting,
        place.shards("dynamic"),
        place.work,
        place.masking,
        repeats,
    )
    for sequences, seconds, waiting in rounds:
        rate = sequences / seconds
        share = 100 * rate / place.ceiling_sequences
        yield [
            Measured("training on records", "sequences/s", rate),
            Measured("training on records", "% of the ceiling", share),
            Measured("waiting for batches", "%", 100 * waiting / seconds),
        ]


def _measure_waiting(
    shards: str, work: Workload, masking: MaskingConfig, repeats: int
) -> list[tuple[float, ...]]:
    """Returns Waiting's figures by round; they come from a fresh process."""
    command_line.load_tensorflow()
    from bin.benchmarking.waiting_benchmark import measure_waiting

    return [
        tuple(one)
        for one in measure_waiting(
            shards,
            work,
            masking_config=masking,
            seconds=_WAITING_SECONDS,
            repeats=repeats,
        )
    ]
