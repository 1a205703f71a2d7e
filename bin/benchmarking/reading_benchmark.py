"""Times what training waits for: reading batches of pretraining records."""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from albert_tf.config import MaskingConfig
from albert_tf.inputs.input_pipeline import PretrainingBatches
from albert_tf.records.schemas import RECORD_SPECS, parse_batch
from albert_tf.records.shards import ShardSet, open_shards

# Batches that are made before the clock runs: imports, caches of the disk.
_WARM_UP = 3


class ReadingTimes(NamedTuple):
    """What making batches took."""

    num_sequences: int
    seconds: float  # of whole batches
    # Seconds of what a batch is made of, repeated on its own.
    reading: float
    parsing: float

    @property
    def rest(self) -> float:
        """Seconds of the rest of a batch: of dynamic records, masking."""
        return max(0.0, self.seconds - self.reading - self.parsing)


def measure_reading(
    directories: Mapping[str, str],
    batch_sizes: Sequence[int],
    *,
    masking_config: MaskingConfig,
    seconds: float,
) -> dict[tuple[str, int], ReadingTimes]:
    """Returns what reading took, by name of the directory and batch size.

    TensorFlow must not have been used in this process: it is told to use a
    single thread.

    Args:
        directories: shard directories with a split `train`, by name.
        batch_sizes: sequences in a batch.
        masking_config: how dynamic records are masked.
        seconds: about how long batches are made for each figure.

    Raises:
        UserError: see `shards.open_shards`.
        RuntimeError: if TensorFlow has started its threads already.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    times = {}
    for name, directory in directories.items():
        with open_shards(directory, "train") as shards:
            for size in batch_sizes:
                times[name, size] = _measure(
                    shards, size, masking_config, seconds
                )
    return times


def _measure(
    shards: ShardSet, size: int, masking_config: MaskingConfig, seconds: float
) -> ReadingTimes:
    batches = PretrainingBatches(
        shards,
        masking_config=masking_config,
        batch_size=size,
        seed=12345,
        training=True,
    )
    for step in range(_WARM_UP):
        batches.batch(step)
    whole = reading = parsing = 0.0
    step = _WARM_UP
    while whole < seconds:
        begin = time.perf_counter()
        batches.batch(step)
        made = time.perf_counter()
        # The same records again, as the batch has read and parsed them.
        serialized = shards.read(batches.record_numbers(step))
        read = time.perf_counter()
        parse_batch(
            RECORD_SPECS[batches.kind],
            serialized,
            max_seq_length=batches.max_seq_length,
            num_slots=shards.metadata["num_slots"],
        )
        parsed = time.perf_counter()
        whole += made - begin
        reading += read - made
        parsing += parsed - read
        step += 1
    return ReadingTimes((step - _WARM_UP) * size, whole, reading, parsing)
