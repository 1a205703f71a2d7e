"""Measures how long training waits for its batches."""

import itertools
import math
import time
from collections.abc import Iterator
from typing import NamedTuple

from albert_tf.config import MaskingConfig
from albert_tf.inputs.input_pipeline import PretrainingBatches, prefetch
from albert_tf.jobs.workload import Workload
from albert_tf.records.shards import open_shards
from bin.benchmarking.our_side import OurSide

# The first steps compile, and the batches made ahead meanwhile are used up.
_WARM_UP = 8
_MOST_STEPS = 1 << 40


class Waiting(NamedTuple):
    """What a round of training on records took."""

    num_sequences: int
    seconds: float
    waiting: float  # seconds of them without a batch


def measure_waiting(
    directory: str,
    work: Workload,
    *,
    masking_config: MaskingConfig,
    seconds: float,
    repeats: int,
) -> Iterator[Waiting]:
    """Yields what rounds of training on records took, fed as by bin.pretrain.

    Args:
        directory: shards with a split `train`, of the work's length.
        work: what is trained; the shards say what on.
        masking_config: how dynamic records are masked.
        seconds: about how long a round is.
        repeats: rounds.

    Raises:
        UserError: see `shards.open_shards`.
    """
    with open_shards(directory, "train") as shards:
        batches = PretrainingBatches(
            shards,
            masking_config=masking_config,
            batch_size=work.batch_size,
            seed=work.training.seed,
            training=True,
        )
        side = OurSide(work, batches.batch(0))
        source = prefetch(batches.batch, range(_MOST_STEPS))
        try:
            for batch in itertools.islice(source, _WARM_UP):
                begin = time.perf_counter()
                side.train_on(batch)
                last = time.perf_counter() - begin
            steps = max(_WARM_UP, math.ceil(seconds / last))
            for _ in range(repeats):
                yield _round(side, source, steps, work.batch_size)
        finally:
            source.close()


def _round(
    side: OurSide, source: Iterator, steps: int, batch_size: int
) -> Waiting:
    waiting = 0.0
    begin = time.perf_counter()
    for _ in range(steps):
        asked = time.perf_counter()
        batch = next(source)
        waiting += time.perf_counter() - asked
        side.train_on(batch)
    whole = time.perf_counter() - begin
    return Waiting(steps * batch_size, whole, waiting)
