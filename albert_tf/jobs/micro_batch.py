"""`micro_batch_size=auto`: the largest micro-batch that fits into memory.

Found by trying: a process of its own makes a few steps with a micro-batch, and
either there is memory enough or that process, not the run, comes to grief.
"""

import contextlib
import dataclasses
import math
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import connection
from typing import IO

import tensorflow as tf

from albert_tf.cluster.distribution import broadcast, is_chief, lost_workers
from albert_tf.cluster.memory import free_memory
from albert_tf.config import UserError, override
from albert_tf.io import files
from albert_tf.io.json_files import read_json
from albert_tf.jobs.training_probe import peak_of_training
from albert_tf.jobs.workload import Workload

AUTO = "auto"
# What is left to the system, to readers of data and to evaluations.
_SHARE_OF_FREE = 0.8
# A first guess, and how far beyond what is known the next one goes: where
# memory is overcommitted, too much ends other processes.
_FIRST_GUESS = 4
_MOST_GROWTH = 16


def resolve_micro_batch(
    setting: int | str,
    strategy: tf.distribute.Strategy,
    run_dir: str,
    work: Workload,
) -> int:
    """Returns the setting's number; for `auto` the one that is found.

    A run that goes on keeps the number that its config.json has: another one
    would add up in another order.

    Args:
        setting: of the training configuration.
        strategy: the replicas.
        run_dir: that of the run, which may not exist.
        work: the global batch, of the longest sequences of the run.

    Raises:
        UserError: when not even a single sequence fits.
        RunStopped: when another worker is lost meanwhile.
    """
    if setting != AUTO:
        return int(setting)
    found = 0
    if is_chief(strategy):
        recorded = _recorded(run_dir)
        found = _measured(strategy, work) if recorded is None else recorded
    with lost_workers(strategy):
        return int(broadcast(strategy, found))


def _recorded(run_dir: str) -> int | None:
    """Returns the micro-batch of a run that has begun, else None."""
    path = os.path.join(run_dir, "config.json")
    if not files.isfile(path):
        return None
    try:
        return int(read_json(path)["config"]["training"]["micro_batch_size"])
    except (KeyError, TypeError, ValueError):
        raise UserError(
            f"{path} does not say the micro_batch_size of its run; give "
            "another --run_dir."
        ) from None


def _measured(strategy: tf.distribute.Strategy, work: Workload) -> int:
    if tf.config.list_physical_devices("GPU") or isinstance(
        strategy, tf.distribute.TPUStrategy
    ):
        raise UserError(
            "micro_batch_size=auto knows the memory of CPUs only; for other "
            "devices give a number."
        )
    share = -(-work.batch_size // strategy.num_replicas_in_sync)
    limit = _SHARE_OF_FREE * free_memory() / _replicas_here(strategy)

    def peak_of(size: int) -> float:
        peak = _peak_in_a_process(work, size, share)
        said = f"{peak / 2**20:.0f} MiB" if peak < math.inf else "too much"
        print(f"Micro-batch of {size}: {said}", flush=True)
        return peak

    found = largest_micro_batch(share, limit, peak_of)
    print(
        f"micro_batch_size={found} of {share}, with room for "
        f"{limit / 2**20:.0f} MiB.",
        flush=True,
    )
    return found


def largest_micro_batch(
    share: int, limit: float, peak_of: Callable[[int], float]
) -> int:
    """Returns the largest part of a replica's share whose peak is in bounds.

    Parts are the share divided by 1, 2, 3 and so on, rounded up: others would
    only add padding.

    Args:
        share: sequences of a replica's share of the batch.
        limit: bytes that may be used.
        peak_of: a micro-batch's peak in bytes, inf where it does not run.

    Raises:
        UserError: when not even one sequence fits.
    """
    sizes = sorted({-(-share // parts) for parts in range(1, share + 1)})
    known: dict[int, float] = {}
    largest, too_large = 0, share + 1
    guess = 1
    while guess > largest:
        known[guess] = peak_of(guess)
        if known[guess] <= limit and known[guess] < math.inf:
            largest = guess
        else:
            too_large = guess
        if not largest:
            taken = "more memory than there is"
            if known[1] < math.inf:
                taken = f"{known[1] / 2**20:.0f} MiB of memory"
            raise UserError(
                f"micro_batch_size=auto: one sequence already takes {taken}, "
                f"and {limit / 2**20:.0f} MiB are to be had. Use "
                "--remat=full, shorter sequences or a smaller model."
            )
        most = _MOST_GROWTH * largest if largest > 1 else _FIRST_GUESS
        if too_large <= share:
            # Between what fits and what does not.
            most = min(most, (largest + too_large) // 2)
        guess = max(
            (
                size
                for size in sizes
                if size <= most and _expected(known, size) <= limit
            ),
            default=largest,
        )
    return largest


def _expected(known: dict[int, float], size: int) -> float:
    """Returns the bytes on the line through the two largest that ran."""
    ran = sorted(n for n, peak in known.items() if peak < math.inf)[-2:]
    if len(ran) < 2:
        return 0.0
    slope = (known[ran[1]] - known[ran[0]]) / (ran[1] - ran[0])
    return known[ran[1]] + slope * (size - ran[1])


def _peak_in_a_process(work: Workload, size: int, share: int) -> float:
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    # It ends with this process, however that ends.
    process = context.Process(
        target=_tell_peak, args=(_part(work, size, share), writer)
    )
    process.daemon = True
    with _quiet() as said:
        process.start()
        writer.close()
        try:
            return reader.recv()
        except EOFError:
            process.join()
            if process.exitcode == -signal.SIGKILL:
                # The system has killed it: memory has run out.
                return math.inf
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines()
            raise RuntimeError(
                f"trying a micro-batch of {size} ended with exit status "
                f"{process.exitcode}: {lines[-1] if lines else 'no word'}"
            ) from None
        finally:
            process.join()
            reader.close()


def _part(work: Workload, size: int, share: int) -> Workload:
    """Returns a step of one micro-batch, or two where there are several.

    Then their sums are held too. As in the run, rows are filled up to whole
    micro-batches. All is trained: patterns of names may mean another head.
    """
    return dataclasses.replace(
        work,
        batch_size=size * min(2, -(-share // size)),
        optimizer=override(work.optimizer, {"freeze": "", "layer_decay": 1.0}),
        training=override(
            work.training, {"micro_batch_size": size, "steps_per_loop": 1}
        ),
    )


def _tell_peak(work: Workload, writer: connection.Connection) -> None:
    """Sends bytes, inf where memory has run out."""
    try:
        peak = peak_of_training(work)
    except (MemoryError, tf.errors.ResourceExhaustedError):
        peak = math.inf
    writer.send(peak)


@contextlib.contextmanager
def _quiet() -> Iterator[IO[bytes]]:
    """Gives the file in which the remarks of processes started here end.

    TensorFlow's libraries write some before they read any setting.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _replicas_here(strategy: tf.distribute.Strategy) -> int:
    """Returns how many replicas share this machine's memory."""
    cluster = getattr(strategy, "cluster_resolver", None)
    if cluster is None or not cluster.cluster_spec().jobs:
        return strategy.num_replicas_in_sync
    addresses = cluster.cluster_spec().job_tasks("worker")
    hosts = [address.rpartition(":")[0] for address in addresses]
    here = hosts.count(hosts[cluster.task_id])
    return here * strategy.num_replicas_in_sync // len(hosts)
