"""The stages that measure data: built offline, and read for training."""

import functools
import os
import resource
import tempfile
import time

from albert_tf.cluster.memory import peak_resident
from albert_tf.records.shards import open_shards
from benchmarks.harness import Stage, Turn, in_fresh_process
from benchmarks.workspace import Workspace
from data_prep.pretraining.pretraining_data import build_pretraining_data

_BATCH_SIZES = (64, 128, 256)
_READING_SECONDS = 2.0
# Batches before the clock runs: imports, caches of the disk.
_WARM_UP = 3


def _builds(workspace: Workspace) -> dict[str, Turn]:
    return {
        f"{workers} on {workers} cores": functools.partial(
            in_fresh_process,
            workspace.cores[:workers],
            measure_build,
            workspace,
            workers,
        )
        for workers in (1, 2)
        if workers <= len(workspace.cores)
    }


def measure_build(workspace: Workspace, workers: int) -> dict[str, float]:
    """Returns the cost of a build, from raw text to shards on disk.

    Call in a fresh process, since peak memory is that of the whole process.
    """
    with tempfile.TemporaryDirectory(dir=workspace.directory) as directory:
        begin = time.perf_counter()
        metadata = build_pretraining_data(
            workspace.corpus,
            directory,
            tokenizer_dir=workspace.tokenizer_dir,
            config=workspace.config,
            masking=workspace.masking,
            workers=workers,
        )
        seconds = time.perf_counter() - begin
    splits, inputs = metadata["splits"], metadata["settings"]["inputs"]
    instances = sum(split["num_records"] for split in splits.values())
    text_bytes = sum(file["num_bytes"] for file in inputs.values())
    found = {
        "instances/s": instances / seconds,
        "MB of text/s": text_bytes / seconds / 1e6,
        "peak memory, MB": peak_resident() / 1e6,
    }
    if workers > 1:
        peak = peak_resident(resource.RUSAGE_CHILDREN)
        found["peak memory of the largest worker, MB"] = peak / 1e6
    return found


DATA_PREPARATION = Stage(
    "bin.build_pretraining_data: records from text to shards on disk, by one "
    "worker on one core and by two on two",
    _builds,
    needs=("corpus", "tokenizer_dir"),
)


def _reading(workspace: Workspace) -> dict[str, Turn]:
    os.sched_setaffinity(0, workspace.cores[:1])
    return {
        f"{kind}, batches of {size}": functools.partial(
            _read, workspace, kind, size
        )
        for kind in workspace.shards
        for size in _BATCH_SIZES
    }


def _read(workspace: Workspace, kind: str, size: int) -> dict[str, float]:
    """Returns the rate of making batches for a few seconds.

    That of CPU seconds depends less on what else the core does.
    """
    from albert_tf.inputs.input_pipeline import PretrainingBatches

    with open_shards(workspace.shards[kind], "train") as shards:
        batches = PretrainingBatches(
            shards,
            masking_config=workspace.masking,
            batch_size=size,
            seed=12345,
            training=True,
        )
        for step in range(_WARM_UP):
            batches.batch(step)
        step, begin, seconds = 0, time.perf_counter(), 0.0
        cpu_begin = time.process_time()
        while seconds < _READING_SECONDS:
            batches.batch(_WARM_UP + step)
            step += 1
            seconds = time.perf_counter() - begin
        cpu_seconds = time.process_time() - cpu_begin
    return {
        "sequences/s": step * size / seconds,
        "sequences/CPU s": step * size / cpu_seconds,
    }


READING = Stage(
    "batches for pretraining out of shards, on one core; dynamic records are "
    "masked as they are read",
    _reading,
    needs=("shards",),
)
