"""Times steps of training and forward passes, side by side in one process.

The rates of a machine drift by more than libraries differ. So the sides take
turns: a round is a few steps of each, and only what lies in one round is
compared. Of a side's ways to do a job all take part that might be its fastest;
which one is, the rounds decide.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from albert_tf.cluster.matmul_rate import matmul_rate
from albert_tf.jobs.workload import Workload, random_batch
from bin.benchmarking.peers import SideKind
from bin.benchmarking.workload import JOBS, Side

# Of a side's turn: at least so long, and so many steps.
_TURN_SECONDS = 2.0
_TURN_STEPS = 3
# Calls after the first, before a variant's time is believed.
_WARM_UP = 2
# A variant that takes so many times as long as another, then, is given up.
_FAR_SLOWER = 1.5


class Prepared(NamedTuple):
    """A variant of a side that is ready for a job."""

    variant: str
    side: Side
    first_seconds: float  # of the first call, which compiles
    seconds: float  # of a call, by the warm-up


class Turn(NamedTuple):
    """What a side did in a round."""

    seconds: float  # of one step
    flops: int  # of one step


class Round(NamedTuple):
    """One turn of each side at each job."""

    ceiling: float  # FLOP/s of a matrix multiplication
    # By job, by side, by variant.
    turns: Mapping[str, Mapping[str, Mapping[str, Turn]]]


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def prepare(
    kind: SideKind,
    work: Workload,
    jobs: Sequence[str] = tuple(JOBS),
    say: Callable[[str], None] = print,
) -> dict[str, list[Prepared]]:
    """Returns for each job the variants that might be fastest, warmed up.

    Raises:
        UserError: for work that the side cannot do.
    """
    batch = random_batch(work)
    found: dict[str, list[Prepared]] = {}
    for variant in kind.variants(work):
        side = kind.make(work, batch, variant)
        for job in jobs:
            if job not in side.flops:
                continue
            call = getattr(side, job)
            first = _seconds(call)
            again = min(_seconds(call) for _ in range(_WARM_UP))
            say(f"{kind.name}, {variant}, {JOBS[job]}: {again:.3g} s a step")
            one = Prepared(variant, side, first, again)
            # At once, so that a side without any job is not kept.
            found[job] = _not_far_slower([*found.get(job, ()), one])
    return found


def _not_far_slower(ones: Sequence[Prepared]) -> list[Prepared]:
    bound = _FAR_SLOWER * min(one.seconds for one in ones)
    return [one for one in ones if one.seconds <= bound]


def measure_rounds(
    prepared: Mapping[str, Mapping[str, Sequence[Prepared]]],
    precision: str,
    repeats: int,
) -> Iterator[Round]:
    """Yields rounds: every variant in turn makes the same number of steps.

    Args:
        prepared: by the name of the side, by job. Whoever begins a round
            ends the next.
        precision: of the products whose rate is the ceiling.
        repeats: rounds.
    """
    names = list(prepared)
    for number in range(repeats):
        first = number % len(names)
        order = names[first:] + names[:first]
        ceiling = matmul_rate(precision)
        turns = {}
        for job in JOBS:
            steps = _steps(
                [one.seconds for ones in prepared.values() for one in ones[job]]
            )
            taken = {
                name: {
                    one.variant: _turn(one, job, steps)
                    for one in prepared[name][job]
                }
                for name in order
            }
            turns[job] = {name: taken[name] for name in names}
        yield Round(ceiling, turns)


def fastest_variants(rounds: Sequence[Round]) -> dict[str, dict[str, str]]:
    """Returns by job and side the variant that took least, on the median."""
    return {
        job: {
            name: min(
                variants,
                key=lambda variant, job=job, name=name: statistics.median(
                    one.turns[job][name][variant].seconds for one in rounds
                ),
            )
            for name, variants in sides.items()
        }
        for job, sides in rounds[0].turns.items()
    }


def _steps(seconds: Sequence[float]) -> int:
    """Returns how many steps fill the turn of the fastest side."""
    return max(_TURN_STEPS, math.ceil(_TURN_SECONDS / min(seconds)))


def _turn(prepared: Prepared, job: str, steps: int) -> Turn:
    call = getattr(prepared.side, job)

    def turn() -> None:
        for _ in range(steps):
            call()

    return Turn(_seconds(turn) / steps, prepared.side.flops[job])
