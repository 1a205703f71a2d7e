"""The stages that measure training: speed, memory, and waiting for data."""

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.cluster.memory import peak_resident
from albert_tf.config import (
    REMAT,
    lookup,
    override,
    require,
    shares_whole_groups,
)
from albert_tf.jobs.workload import Workload, random_batch
from bin import command_line
from bin.benchmarking import machine
from bin.benchmarking.harness import (
    CEILING,
    Measurement,
    Stage,
    Turns,
    require_packages,
    seconds_of,
)
from bin.benchmarking.keras_hub_peer import KerasHubSide
from bin.benchmarking.side import JOBS, OurSide, Side, check_precision
from bin.benchmarking.transformers_peer import TransformersSide

PEERS: dict[str, type[Side]] = {
    side.name: side for side in (TransformersSide, KerasHubSide)
}
_SIDES: dict[str, type[Side]] = {OurSide.name: OurSide, **PEERS}

_MIB = 2**20
# The shortest time of a turn in seconds, and its fewest steps.
_TURN_SECONDS = 2.0
_TURN_STEPS = 3
# Calls after the first, which traces and compiles.
_WARM_UP = 2
# A variant slower than another by this factor is left out.
_MAX_SLOWDOWN = 1.5
_MEMORY_STEPS = 3
_WAITING_SECONDS = 5.0
# Steps that use up the batches made ahead.
_WAITING_WARM_UP = 8


def check_peers(names: Sequence[str], work: Workload) -> list[str]:
    """Returns the names of PEERS without repetitions.

    Raises:
        UserError: for a name that is unknown, not installed, or does not
            the same work.
    """
    names = list(dict.fromkeys(names))
    for name in names:
        peer = lookup(PEERS, name, "against")
        require_packages(f"A comparison with {name}", peer.packages)
        require(
            shares_whole_groups(work.model),
            f"sharing={work.model.sharing}: the ALBERT of {name} shares whole "
            "layers; choose another --preset.",
        )
        check_precision(name, work, peer.precisions)
    return names


class Turn(NamedTuple):
    """Some steps of one side at one job."""

    seconds: float  # of one step
    flops: int  # of one step
    first_seconds: float  # of the first call, which traces and compiles
    does: str


def _without_slow(seconds: Mapping[Any, float]) -> list[Any]:
    """Returns the variants that might be fastest."""
    bound = _MAX_SLOWDOWN * min(seconds.values())
    return [variant for variant, one in seconds.items() if one <= bound]


class Training(Stage):
    """Steps and forward passes of all sides in one process."""

    name = "training"
    description = (
        "pretraining steps and forward passes on random tokens, all sides by "
        "turns in one process, beside the machine's rate of matrix "
        "multiplication; ratios above 1: ours is faster"
    )

    def sides(self) -> dict[Any, Callable[[], Any]]:
        work, names = self.workspace.work, self.workspace.sides
        batch = random_batch(work)
        turns: dict[Any, Callable[[int], Turn]] = {}
        # Seconds of a step: job -> side -> variant.
        warm: Any = {job: {name: {} for name in names} for job in JOBS}
        for name in names:
            for variant in _SIDES[name].variants(work):
                side = _SIDES[name](work, batch, variant)
                for job in side.flops:
                    call = getattr(side, job)
                    turns[job, name, variant] = functools.partial(
                        _turn, side, job, seconds_of(call)
                    )
                    seconds = min(seconds_of(call) for _ in range(_WARM_UP))
                    warm[job][name][variant] = seconds
                    command_line.log(
                        f"{name}, {variant}, {JOBS[job]}: {seconds:.3g} s"
                    )
        sides: dict[Any, Callable[[], Any]] = self.ceiling()
        for job, of_job in warm.items():
            fastest = min(min(each.values()) for each in of_job.values())
            steps = max(_TURN_STEPS, math.ceil(_TURN_SECONDS / fastest))
            for name, seconds in of_job.items():
                for variant in _without_slow(seconds):
                    key = job, name, variant
                    sides[key] = functools.partial(turns[key], steps)
        return sides

    def select(self, rounds: list[Turns]) -> list[Turns]:
        def median(key: Any) -> float:
            return statistics.median(turns[key].seconds for turns in rounds)

        fastest = {CEILING: CEILING}
        for key in list(rounds[0])[1:]:
            best = fastest.setdefault(key[:2], key)
            fastest[key[:2]] = min(best, key, key=median)
        return [
            {pair: turns[key] for pair, key in fastest.items()}
            for turns in rounds
        ]

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        ceiling, work = turns[CEILING], self.workspace.work
        yield CEILING, "GFLOP/s", ceiling / 1e9
        for job, name, turn in _by_side(turns):
            label = f"{JOBS[job]}, {name}"
            rate = work.batch_size / turn.seconds
            flops = turn.flops / turn.seconds
            yield label, "sequences/s", rate
            yield label, "tokens/s", rate * work.seq_length
            yield label, "GFLOP/s", flops / 1e9
            yield label, "% of the ceiling", 100 * flops / ceiling
            if name != OurSide.name:
                ratio = turn.seconds / turns[job, OurSide.name].seconds
                yield f"{JOBS[job]}, ours to {name}", "times", ratio
        for job, name, turn in _by_side(turns):
            yield f"{JOBS[job]}, {name}, first call", "s", turn.first_seconds

    def notes(self, turns: Turns) -> list[str]:
        return [
            f"{JOBS[job]}, {name}: {turn.does}."
            for job, name, turn in _by_side(turns)
        ]


def _by_side(turns: Turns) -> Iterator[tuple[str, str, Turn]]:
    return ((*key, turns[key]) for key in turns if key != CEILING)


def _turn(side: Side, job: str, first_seconds: float, steps: int) -> Turn:
    call = getattr(side, job)

    def make_steps() -> None:
        for _ in range(steps):
            call()

    return Turn(
        seconds_of(make_steps) / steps,
        side.flops[job],
        first_seconds,
        side.does[job],
    )


class Peak(NamedTuple):
    """The memory of training steps of one variant."""

    peak_bytes: int
    seconds: float  # of a step
    does: str


class Memory(Stage):
    """Peak memory of training steps, each variant in a fresh process."""

    name = "memory"
    description = (
        "what is resident at the peak of training steps, each side in a "
        "process of its own, libraries included; ratios below 1: ours takes "
        "less"
    )
    fresh_process = False

    def sides(self) -> dict[Any, Callable[[], Any]]:
        names = self.workspace.sides
        return {name: functools.partial(self._peak, name) for name in names}

    def _peak(self, name: str) -> Peak:
        """Returns the least peak of the variants that might be fastest."""
        seconds, work = {}, self.workspace.work
        for variant in _SIDES[name].variants(work):
            peak = machine.in_fresh_process(
                self.workspace.cores, peak_of_side, name, work, variant
            )
            if peak:
                seconds[peak] = peak.seconds
                command_line.log(
                    f"{name}, {variant}: {peak.peak_bytes / _MIB:.0f} MiB "
                    "resident"
                )
        return min(_without_slow(seconds))

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        for name, peak in turns.items():
            mib = peak.peak_bytes / _MIB
            yield f"{name}, resident at the peak", "MiB", mib
        for name, peak in turns.items():
            if name != OurSide.name:
                ratio = turns[OurSide.name].peak_bytes / peak.peak_bytes
                yield f"ours to {name}", "times", ratio

    def notes(self, turns: Turns) -> list[str]:
        return [f"{name}: {peak.does}." for name, peak in turns.items()]


def peak_of_side(name: str, work: Workload, variant: str) -> Peak | None:
    """Returns the peak of a side's training steps; None if it makes none.

    Call in a fresh process: everything in it counts.
    """
    if name != TransformersSide.name:
        command_line.load_tensorflow()
    side = _SIDES[name](work, random_batch(work), variant)
    if "train_step" not in side.flops:
        return None
    seconds = [seconds_of(side.train_step) for _ in range(_MEMORY_STEPS)]
    return Peak(peak_resident(), min(seconds), side.does["train_step"])


class Recomputation(Stage):
    """Memory and time of a step by --remat, each in a fresh process."""

    name = "recomputation"
    description = (
        "forward and backward of a training step, by what --remat computes "
        "again for the gradient instead of keeping it"
    )
    fresh_process = False

    def sides(self) -> dict[Any, Callable[[], Any]]:
        return {remat: functools.partial(self._run, remat) for remat in REMAT}

    def _run(self, remat: str) -> list[Measurement]:
        work = self.workspace.work
        work = dataclasses.replace(
            work, training=override(work.training, {"remat": remat})
        )
        turn = machine.in_fresh_process(self.workspace.cores, step_memory, work)
        command_line.log(f"remat {remat}: {turn[0][2]:.0f} MiB of tensors")
        return turn

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        for remat, turn in turns.items():
            for name, unit, value in turn:
                yield f"{remat}, {name}", unit, value
        names = ("tensors", "resident memory", "time")
        for remat in REMAT[1:]:
            for number, name in enumerate(names):
                ratio = turns[remat][number][2] / turns["none"][number][2]
                yield f"{remat} to none, {name}", "times", ratio


def step_memory(work: Workload) -> list[Measurement]:
    """Returns the cost of forward and backward of a pretraining batch.

    Memory is at its peak: that of tensors, weights included, and of the
    process. The time of a step is the median.

    Call in a fresh process: peaks are those of the whole process, and
    TensorFlow must be loaded with the allocator that counts.
    """
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
    # A bound beyond any machine.
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(1 << 24)
    command_line.load_tensorflow()
    import keras
    import tensorflow as tf

    from albert_tf.modeling.dropout import example_keys
    from albert_tf.modeling.models import AlbertForPretraining
    from albert_tf.training.trainer import DTYPE_POLICIES

    keras.utils.set_random_seed(1)
    model = AlbertForPretraining(
        work.model,
        remat=work.training.remat,
        dtype=DTYPE_POLICIES[work.training.precision],
    )
    variables = [variable.value for variable in model.trainable_variables]
    batch = {n: tf.constant(v) for n, v in random_batch(work).items()}

    @tf.function
    def step() -> tf.Tensor:
        keys = example_keys(1, tf.constant(0), tf.range(work.batch_size))
        with tf.GradientTape() as tape:
            outputs = model(
                batch, dropout_keys=keys, training=True, heads_only=True
            )
            losses = [
                head.loss(outputs, batch) for head in model.heads.values()
            ]
            loss = tf.add_n([value / weight for value, weight in losses])
        gradients = tape.gradient(loss, variables)
        return tf.linalg.global_norm(
            [tf.convert_to_tensor(gradient) for gradient in gradients]
        )

    norm = float(step())
    seconds = [seconds_of(lambda: float(step())) for _ in range(_MEMORY_STEPS)]
    tensors = tf.config.experimental.get_memory_info("CPU:0")["peak"]
    return [
        ("tensors", "MiB", tensors / _MIB),
        ("resident", "MiB", peak_resident() / _MIB),
        ("step", "s", statistics.median(seconds)),
        ("gradient norm", "", norm),
    ]


class DataWait(Stage):
    """Training on records that a prefetch thread reads and masks."""

    name = "data_wait"
    description = (
        "training on records that are read and masked meanwhile, as by "
        "bin.pretrain, and the share of the time without a batch"
    )
    needs = ("dynamic_shards", "ceiling")

    def sides(self) -> dict[Any, Callable[[], Any]]:
        from albert_tf.inputs.input_pipeline import PretrainingBatches
        from albert_tf.records.shards import open_shards

        work = self.workspace.work
        # Open until the process ends.
        shards = open_shards(self.workspace.dynamic_shards, "train")
        batches = PretrainingBatches(
            shards,
            masking_config=self.workspace.masking,
            batch_size=work.batch_size,
            seed=work.training.seed,
            training=True,
        )
        side = OurSide(work, batches.batch(0))
        side.train_step()
        return {"ours": functools.partial(self.turn, side, batches.batch)}

    def turn(
        self, side: OurSide, batch: Callable[[int], Any]
    ) -> list[Measurement]:
        """Returns the cost of some seconds of training."""
        from albert_tf.inputs.prefetch import prefetch

        with contextlib.closing(prefetch(batch, range(1 << 40))) as source:
            for one in itertools.islice(source, _WAITING_WARM_UP):
                last = seconds_of(side.train_on, one)
            steps = max(_WAITING_WARM_UP, math.ceil(_WAITING_SECONDS / last))
            waiting = 0.0
            begin = time.perf_counter()
            for _ in range(steps):
                asked = time.perf_counter()
                one = next(source)
                waiting += time.perf_counter() - asked
                side.train_on(one)
            seconds = time.perf_counter() - begin
        rate = steps * self.workspace.work.batch_size / seconds
        label = "training on records"
        return [
            (label, "sequences/s", rate),
            (label, "% of the ceiling", 100 * rate / self.workspace.ceiling),
            ("waiting for batches", "%", 100 * waiting / seconds),
        ]
