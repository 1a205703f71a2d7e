"""`micro_batch_size=auto`: the largest micro-batch that fits into memory.

Found by trials: a process of its own runs a few steps with a micro-batch, so
that it, not the run, ends when memory is exhausted.
"""

import dataclasses
import math
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

import tensorflow as tf

from albert_tf.cluster.distribution import broadcast, is_chief, lost_workers
from albert_tf.cluster.memory import free_memory, peak_resident
from albert_tf.config import ModelConfig, override, require
from albert_tf.io import files
from albert_tf.io.error_stream import stderr_to
from albert_tf.io.json_files import read_json
from albert_tf.jobs.training_probe import make_probe
from albert_tf.jobs.workload import Workload, random_batch
from albert_tf.rundir.run_directory import CONFIG, extended
from albert_tf.training.job import Environment

AUTO = "auto"
# The rest is left to the system, to readers of data and to evaluations.
_SHARE_OF_FREE = 0.8
# The first guess, and the largest factor from one trial to the next: where
# memory is overcommitted, a trial that is too large ends other processes.
_FIRST_GUESS = 4
_MAX_GROWTH = 16
# Steps of a trial.
_STEPS = 3


def resolve_for_machine(
    config: Any, environment: Environment, model: ModelConfig, **shape: int
) -> Any:
    """Returns the configuration, extended and with a micro-batch that fits.

    `config` has all that the data decides; `shape` is that of the largest
    batch, as in `Workload`.
    """
    config = extended(config, environment.runtime)
    work = Workload(
        model=model,
        training=config.training,
        optimizer=config.optimizer,
        **shape,
    )
    size = resolve_micro_batch(environment.strategy, environment.run_dir, work)
    return override(config, {"micro_batch_size": size})


def resolve_micro_batch(
    strategy: tf.distribute.Strategy, run_dir: str, work: Workload
) -> int:
    """Returns the number that is set; for `auto` the largest that fits.

    A resumed run keeps the number in its config.json: another one would add
    gradients in another order.

    Raises:
        UserError: when not even a single sequence fits.
        RunStopped: when another worker is lost meanwhile.
    """
    setting: int | str = work.training.micro_batch_size
    if setting != AUTO:
        return int(setting)
    size = 0
    if is_chief(strategy):
        path = os.path.join(run_dir, CONFIG)
        if files.isfile(path):
            training = read_json(path).get("config", {}).get("training", {})
            size = training.get("micro_batch_size", 0)
        size = size or _probe(strategy, work)
    with lost_workers(strategy):
        return int(broadcast(strategy, size))


def _probe(strategy: tf.distribute.Strategy, work: Workload) -> int:
    """Returns the largest micro-batch by trials on this machine."""
    require(
        not tf.config.list_physical_devices("GPU")
        and not isinstance(strategy, tf.distribute.TPUStrategy),
        "micro_batch_size=auto knows the memory of CPUs only; for other "
        "devices give a number.",
    )
    batch_size = -(-work.batch_size // strategy.num_replicas_in_sync)
    limit = _SHARE_OF_FREE * free_memory() / _num_local_replicas(strategy)

    def peak_of(size: int) -> float:
        peak = _peak_in_a_process(work, size, batch_size)
        print(f"Micro-batch of {size}: {_memory(peak)}", flush=True)
        return peak

    size = largest_micro_batch(batch_size, limit, peak_of)
    print(
        f"micro_batch_size={size} of {batch_size}, within {_memory(limit)}.",
        flush=True,
    )
    return size


def largest_micro_batch(
    batch_size: int, limit: float, peak_of: Callable[[int], float]
) -> int:
    """Returns the largest micro-batch of a replica's batch that fits.

    Candidates are the batch size divided by 1, 2, 3 and so on, rounded up:
    others would only add padding. The limit and peaks are in bytes; inf: out
    of memory.

    Raises:
        UserError: when not even one sequence fits.
    """
    sizes = sorted(
        {-(-batch_size // parts) for parts in range(1, batch_size + 1)}
    )
    peaks: dict[int, float] = {}
    largest, too_large = 0, batch_size + 1
    guess = 1
    while guess > largest:
        peaks[guess] = peak_of(guess)
        if peaks[guess] <= limit and peaks[guess] < math.inf:
            largest = guess
        else:
            too_large = guess
        require(
            largest > 0,
            "micro_batch_size=auto: one sequence already needs "
            f"{_memory(peaks[1])}, and {_memory(limit)} are available. Use "
            "--remat=full, shorter sequences or a smaller model.",
        )
        max_guess = _MAX_GROWTH * largest if largest > 1 else _FIRST_GUESS
        if too_large <= batch_size:
            # Bisects between what fits and what does not.
            max_guess = min(max_guess, (largest + too_large) // 2)
        guess = max(
            (
                size
                for size in sizes
                if size <= max_guess and _extrapolate(peaks, size) <= limit
            ),
            default=largest,
        )
    return largest


def _memory(size: float) -> str:
    if size == math.inf:
        return "more memory than there is"
    return f"{size / 2**20:.0f} MiB"


def _extrapolate(peaks: dict[int, float], size: int) -> float:
    """Returns the bytes on the line through the two largest that ran."""
    ran = sorted(n for n, peak in peaks.items() if peak < math.inf)[-2:]
    if len(ran) < 2:
        return 0.0
    slope = (peaks[ran[1]] - peaks[ran[0]]) / (ran[1] - ran[0])
    return peaks[ran[1]] + slope * (size - ran[1])


def _send_peak(work: Workload, writer: connection.Connection) -> None:
    """Sends the peak resident bytes of this process; inf: out of memory."""
    try:
        trainer, batch = make_probe(work), random_batch(work)
        for _ in range(_STEPS):
            trainer.train_step(batch)
        writer.send(peak_resident())
    except (MemoryError, tf.errors.ResourceExhaustedError):
        writer.send(math.inf)


def _peak_in_a_process(work: Workload, size: int, batch_size: int) -> float:
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    # A daemon ends with this process, however that ends.
    process = context.Process(
        target=_send_peak,
        args=(_trial(work, size, batch_size), writer),
        daemon=True,
    )
    # TensorFlow's libraries write to it before they read any log level.
    with tempfile.TemporaryFile() as captured, stderr_to(captured):
        process.start()
        writer.close()
        try:
            return reader.recv()
        except EOFError:
            process.join()
            if process.exitcode == -signal.SIGKILL:
                # Killed by the system: out of memory.
                return math.inf
            captured.seek(0)
            lines = captured.read().decode(errors="replace").splitlines()
            raise RuntimeError(
                f"trying a micro-batch of {size} ended with exit status "
                f"{process.exitcode}: {lines[-1] if lines else 'no output'}"
            ) from None
        finally:
            process.join()
            reader.close()


def _trial(work: Workload, size: int, batch_size: int) -> Workload:
    """Returns a step of one micro-batch, or two where there are several.

    With two, their accumulated gradients are held too. As in the run, rows
    are padded to whole micro-batches. All variables are trained: patterns of
    names may be those of another head.
    """
    return dataclasses.replace(
        work,
        batch_size=size * min(2, -(-batch_size // size)),
        optimizer=override(work.optimizer, {"freeze": "", "layer_decay": 1.0}),
        training=override(
            work.training, {"micro_batch_size": size, "steps_per_loop": 1}
        ),
    )


def _num_local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of replicas that share this machine's memory."""
    cluster = getattr(strategy, "cluster_resolver", None)
    if cluster is None or not cluster.cluster_spec().jobs:
        return strategy.num_replicas_in_sync
    addresses = cluster.cluster_spec().job_tasks("worker")
    hosts = [address.rpartition(":")[0] for address in addresses]
    here = hosts.count(hosts[cluster.task_id])
    return here * strategy.num_replicas_in_sync // len(hosts)
