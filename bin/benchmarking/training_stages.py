"""The stages that measure training: speed, memory, and waiting for data."""

import dataclasses
import functools
import importlib.util
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from albert_tf.cluster.memory import peak_resident
from albert_tf.config import REMAT, MaskingConfig, UserError, override
from albert_tf.jobs.workload import Workload, random_batch
from bin import command_line
from bin.benchmarking import machine
from bin.benchmarking.harness import Measurement, Stage, Turns, log
from bin.benchmarking.keras_hub_peer import KerasHubSide
from bin.benchmarking.side import JOBS, OurSide, Side
from bin.benchmarking.transformers_peer import TransformersSide
from bin.benchmarking.workspace import Workspace

PEERS: dict[str, type[Side]] = {
    side.name: side for side in (TransformersSide, KerasHubSide)
}
_SIDES: dict[str, type[Side]] = {OurSide.name: OurSide, **PEERS}

_MIB = 2**20
_CEILING = "matrix multiplication"
# A turn takes at least so long, and so many steps.
_TURN_SECONDS = 2.0
_TURN_STEPS = 3
# Calls after the first, which traces and compiles.
_WARM_UP = 2
# A variant that takes so many times as long as another is left out.
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
    for name in names:
        if name not in PEERS:
            raise UserError(
                f"against={name!r} is not one of {', '.join(PEERS)}."
            )
    missing = [
        package
        for name in names
        for package in PEERS[name].packages
        if importlib.util.find_spec(package) is None
    ]
    if missing:
        raise UserError(
            f"A comparison with {' and '.join(names)} needs "
            f"{' and '.join(missing)}, not installed here: "
            "pip install -r requirements-parity.txt."
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


@dataclasses.dataclass
class _Comparison(Stage):
    work: Workload
    # Names of sides.
    names: Sequence[str]
    cores: Sequence[int]

    @classmethod
    def prepare(cls, workspace: Workspace) -> Self:
        names = (OurSide.name, *workspace.peers)
        return cls(workspace.work, names, workspace.cores)


class Training(_Comparison):
    """Steps and forward passes of all sides in one process."""

    name = "training"
    description = (
        "pretraining steps and forward passes on random tokens, all sides by "
        "turns in one process, beside the machine's rate of matrix "
        "multiplication; ratios above 1: ours is faster"
    )

    def sides(self) -> dict[Any, Callable[[], Any]]:
        from albert_tf.cluster.matmul_rate import matmul_rate

        batch = random_batch(self.work)
        ready: dict[tuple[str, str], dict[str, tuple[float, Callable]]] = {}
        for name in self.names:
            for variant in _SIDES[name].variants(self.work):
                side = _SIDES[name](self.work, batch, variant)
                for job in side.flops:
                    first = _seconds(getattr(side, job))
                    seconds = min(
                        _seconds(getattr(side, job)) for _ in range(_WARM_UP)
                    )
                    log(f"{name}, {variant}, {JOBS[job]}: {seconds:.3g} s")
                    turn = functools.partial(_turn, side, job, first)
                    variants = ready.setdefault((job, name), {})
                    variants[variant] = seconds, turn
        rate = functools.partial(matmul_rate, self.work.training.precision)
        sides: dict[Any, Callable[[], Any]] = {_CEILING: rate}
        for job, name in itertools.product(JOBS, self.names):
            variants = ready[job, name]
            fastest = min(
                seconds
                for other in self.names
                for seconds, _ in ready[job, other].values()
            )
            steps = max(_TURN_STEPS, math.ceil(_TURN_SECONDS / fastest))
            for variant in _without_slow({v: variants[v][0] for v in variants}):
                sides[job, name, variant] = functools.partial(
                    variants[variant][1], steps
                )
        return sides

    def select(self, rounds: list[Turns]) -> list[Turns]:
        medians = {
            key: statistics.median(turns[key].seconds for turns in rounds)
            for key in rounds[0]
            if key != _CEILING
        }
        # The last of each wins, so the fastest.
        fastest = {
            key[:2]: key for key in sorted(medians, key=medians.get)[::-1]
        }
        pairs = dict.fromkeys(key[:2] for key in medians)
        return [
            {
                _CEILING: turns[_CEILING],
                **{pair: turns[fastest[pair]] for pair in pairs},
            }
            for turns in rounds
        ]

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        ceiling = turns[_CEILING]
        yield _CEILING, "GFLOP/s", ceiling / 1e9
        for job, name, turn in _by_side(turns):
            label = f"{JOBS[job]}, {name}"
            rate = self.work.batch_size / turn.seconds
            flops = turn.flops / turn.seconds
            yield label, "sequences/s", rate
            yield label, "tokens/s", rate * self.work.seq_length
            yield label, "GFLOP/s", flops / 1e9
            yield label, "% of the ceiling", 100 * flops / ceiling
            if name != OurSide.name:
                ratio = turn.seconds / turns[job, OurSide.name].seconds
                yield f"{JOBS[job]}, ours to {name}", "times", ratio

    def first_measurements(self, turns: Turns) -> Iterator[Measurement]:
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


class Memory(_Comparison):
    """Peak memory of training steps, each variant in a fresh process."""

    name = "memory"
    description = (
        "what is resident at the peak of training steps, each side in a "
        "process of its own, libraries included; ratios below 1: ours takes "
        "less"
    )
    fresh_process = False

    def sides(self) -> dict[tuple[str, str], Callable[[], Peak | None]]:
        return {
            (name, variant): functools.partial(self._run, name, variant)
            for name in self.names
            for variant in _SIDES[name].variants(self.work)
        }

    def _run(self, name: str, variant: str) -> Peak | None:
        peak, _ = machine.in_fresh_process(
            self.cores, peak_of_side, name, self.work, variant
        )
        if peak:
            log(f"{name}, {variant}: {peak.peak_bytes / _MIB:.0f} MiB resident")
        return peak

    def select(self, rounds: list[Turns]) -> list[Turns]:
        return [
            {
                name: min(
                    turns[key]
                    for key in _without_slow(
                        {
                            key: turn.seconds
                            for key, turn in turns.items()
                            if key[0] == name and turn
                        }
                    )
                )
                for name in self.names
            }
            for turns in rounds
        ]

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


@dataclasses.dataclass
class Recomputation(Stage):
    """Memory and time of a step by --remat, each in a fresh process."""

    name = "recomputation"
    description = (
        "forward and backward of a training step, by what --remat computes "
        "again for the gradient instead of keeping it"
    )
    fresh_process = False

    work: Workload
    cores: Sequence[int]

    @classmethod
    def prepare(cls, workspace: Workspace) -> Self:
        return cls(workspace.work, workspace.cores)

    def sides(self) -> dict[str, Callable[[], StepMemory]]:
        return {remat: functools.partial(self._run, remat) for remat in REMAT}

    def _run(self, remat: str) -> StepMemory:
        training = override(self.work.training, {"remat": remat})
        work = dataclasses.replace(self.work, training=training)
        memory, _ = machine.in_fresh_process(self.cores, step_memory, work)
        log(f"remat {remat}: {memory.tensor_bytes / _MIB:.0f} MiB of tensors")
        return memory

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        """Yields memory, time and gradient norm, and ratios to "none"."""
        for remat, turn in turns.items():
            yield f"{remat}, tensors", "MiB", turn.tensor_bytes / _MIB
            yield f"{remat}, resident", "MiB", turn.resident_bytes / _MIB
            yield f"{remat}, step", "s", turn.seconds
            yield f"{remat}, gradient norm", "", turn.gradient_norm
        for remat in REMAT[1:]:
            for number, name in enumerate(
                ("tensors", "resident memory", "time")
            ):
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


class Waiting(NamedTuple):
    """The cost of training on records."""

    num_sequences: int
    seconds: float
    waiting: float  # seconds of them without a batch


@dataclasses.dataclass
class DataWait(Stage):
    """Training on records that a prefetch thread reads and masks."""

    name = "data_wait"
    description = (
        "training on records that are read and masked meanwhile, as by "
        "bin.pretrain, and the share of the time without a batch"
    )

    work: Workload
    shards: str
    masking: MaskingConfig
    ceiling: float

    @classmethod
    def prepare(cls, workspace: Workspace) -> Self:
        return cls(
            workspace.work,
            workspace.shards("dynamic"),
            workspace.masking,
            workspace.ceiling,
        )

    def sides(self) -> dict[str, Callable[[], Waiting]]:
        from albert_tf.inputs.input_pipeline import PretrainingBatches
        from albert_tf.records.shards import open_shards

        # Open until the process ends.
        shards = open_shards(self.shards, "train")
        batches = PretrainingBatches(
            shards,
            masking_config=self.masking,
            batch_size=self.work.batch_size,
            seed=self.work.training.seed,
            training=True,
        )
        side = OurSide(self.work, batches.batch(0))
        side.train_step()
        return {
            "ours": functools.partial(
                measure_waiting, side, batches.batch, self.work.batch_size
            )
        }

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        turn = turns["ours"]
        rate = turn.num_sequences / turn.seconds
        label = "training on records"
        yield label, "sequences/s", rate
        yield label, "% of the ceiling", 100 * rate / self.ceiling
        share = 100 * turn.waiting / turn.seconds
        yield "waiting for batches", "%", share


def measure_waiting(
    side: OurSide, batch: Callable[[int], Any], batch_size: int
) -> Waiting:
    """Returns the cost of some seconds of training on batches made ahead."""
    from albert_tf.inputs.input_pipeline import prefetch

    source = prefetch(batch, range(1 << 40))
    try:
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
        return Waiting(steps * batch_size, time.perf_counter() - begin, waiting)
    finally:
        source.close()
