"""The stages that measure training: speed, memory, and waiting for data."""

import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from albert_tf.cluster.memory import peak_resident
from albert_tf.config import REMAT, lookup, override, require
from albert_tf.jobs.workload import Workload, random_batch
from bin import command_line
from bin.benchmarking import machine
from bin.benchmarking.harness import Measurement, Stage, Turns
from bin.benchmarking.keras_hub_peer import KerasHubSide
from bin.benchmarking.side import JOBS, OurSide, Side
from bin.benchmarking.transformers_peer import TransformersSide

PEERS: dict[str, type[Side]] = {
    side.name: side for side in (TransformersSide, KerasHubSide)
}
_SIDES: dict[str, type[Side]] = {OurSide.name: OurSide, **PEERS}

_MIB = 2**20
_CEILING = "matrix multiplication"
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

Key = TypeVar("Key")


def check_peers(names: Sequence[str], work: Workload) -> list[str]:
    """Returns the names of PEERS without repetitions.

    Raises:
        UserError: for a name that is unknown, not installed, or has no model
            for the work.
    """
    names = list(dict.fromkeys(names))
    missing = [
        package
        for name in names
        for package in lookup(PEERS, name, "against").packages
        if importlib.util.find_spec(package) is None
    ]
    require(
        not missing,
        f"A comparison with {' and '.join(names)} needs "
        f"{' and '.join(missing)}, not installed here: pip install -r "
        "requirements-parity.txt.",
    )
    for name in names:
        PEERS[name].variants(work)
    return names


class Turn(NamedTuple):
    """Some steps of one side at one job."""

    seconds: float  # of one step
    flops: int  # of one step
    first_seconds: float  # of the first call, which traces and compiles
    does: str


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _without_slow(seconds: Mapping[Key, float]) -> list[Key]:
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
        from albert_tf.cluster.matmul_rate import matmul_rate

        work, names = self.workspace.work, self.workspace.sides
        batch = random_batch(work)
        ready: dict[Any, tuple[Side, float]] = {}
        warm: dict[Any, float] = {}
        for name in names:
            for variant in _SIDES[name].variants(work):
                side = _SIDES[name](work, batch, variant)
                for job in side.flops:
                    call, key = getattr(side, job), (job, name, variant)
                    ready[key] = side, _seconds(call)
                    warm[key] = min(_seconds(call) for _ in range(_WARM_UP))
                    command_line.log(
                        f"{name}, {variant}, {JOBS[job]}: {warm[key]:.3g} s"
                    )
        rate = functools.partial(matmul_rate, work.training.precision)
        sides: dict[Any, Callable[[], Any]] = {_CEILING: rate}
        for job in JOBS:
            of_job = {key: one for key, one in warm.items() if key[0] == job}
            fastest = min(of_job.values())
            steps = max(_TURN_STEPS, math.ceil(_TURN_SECONDS / fastest))
            for name in names:
                for key in _without_slow(
                    {key: one for key, one in of_job.items() if key[1] == name}
                ):
                    sides[key] = functools.partial(
                        _turn, ready[key][0], job, ready[key][1], steps
                    )
        return sides

    def select(self, rounds: list[Turns]) -> list[Turns]:
        def median(key: Any) -> float:
            return statistics.median(turns[key].seconds for turns in rounds)

        fastest = {
            pair: min((k for k in rounds[0] if k[:2] == pair), key=median)
            for pair in (k[:2] for k in rounds[0] if k != _CEILING)
        }
        return [
            {
                _CEILING: turns[_CEILING],
                **{pair: turns[key] for pair, key in fastest.items()},
            }
            for turns in rounds
        ]

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        ceiling, work = turns[_CEILING], self.workspace.work
        yield _CEILING, "GFLOP/s", ceiling / 1e9
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
    return ((*key, turns[key]) for key in turns if key != _CEILING)


def _turn(side: Side, job: str, first_seconds: float, steps: int) -> Turn:
    call = getattr(side, job)

    def make_steps() -> None:
        for _ in range(steps):
            call()

    return Turn(
        _seconds(make_steps) / steps,
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
            peak, _ = machine.in_fresh_process(
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
    seconds = [_seconds(side.train_step) for _ in range(_MEMORY_STEPS)]
    return Peak(peak_resident(), min(seconds), side.does["train_step"])


class StepMemory(NamedTuple):
    """The cost of forward and backward of one batch."""

    tensor_bytes: int  # at their peak, weights included
    resident_bytes: int  # of the process, at its peak
    seconds: float  # of a step, the median
    gradient_norm: float


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

    def _run(self, remat: str) -> StepMemory:
        work = self.workspace.work
        work = dataclasses.replace(
            work, training=override(work.training, {"remat": remat})
        )
        memory, _ = machine.in_fresh_process(
            self.workspace.cores, step_memory, work
        )
        command_line.log(
            f"remat {remat}: {memory.tensor_bytes / _MIB:.0f} MiB of tensors"
        )
        return memory

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        """Yields memory, time and gradient norm, and ratios to "none"."""
        for remat, turn in turns.items():
            yield f"{remat}, tensors", "MiB", turn.tensor_bytes / _MIB
            yield f"{remat}, resident", "MiB", turn.resident_bytes / _MIB
            yield f"{remat}, step", "s", turn.seconds
            yield f"{remat}, gradient norm", "", turn.gradient_norm
        names = ("tensors", "resident memory", "time")
        for remat in REMAT[1:]:
            for number, name in enumerate(names):
                ratio = turns[remat][number] / turns["none"][number]
                yield f"{remat} to none, {name}", "times", ratio


def step_memory(work: Workload) -> StepMemory:
    """Returns the cost of forward and backward of a pretraining batch.

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
    seconds = [_seconds(lambda: float(step())) for _ in range(_MEMORY_STEPS)]
    return StepMemory(
        tf.config.experimental.get_memory_info("CPU:0")["peak"],
        peak_resident(),
        statistics.median(seconds),
        norm,
    )


class DataWait(Stage):
    """Training on records that a prefetch thread reads and masks."""

    name = "data_wait"
    description = (
        "training on records that are read and masked meanwhile, as by "
        "bin.pretrain, and the share of the time without a batch"
    )

    def prepare(self) -> None:
        self.workspace.shards("dynamic")
        _ = self.workspace.ceiling

    def sides(self) -> dict[Any, Callable[[], Any]]:
        from albert_tf.inputs.input_pipeline import PretrainingBatches
        from albert_tf.records.shards import open_shards

        work = self.workspace.work
        # Open until the process ends.
        shards = open_shards(self.workspace.shards("dynamic"), "train")
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
        from albert_tf.inputs.input_pipeline import prefetch

        with contextlib.closing(prefetch(batch, range(1 << 40))) as source:
            for one in itertools.islice(source, _WAITING_WARM_UP):
                last = _seconds(functools.partial(side.train_on, one))
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
