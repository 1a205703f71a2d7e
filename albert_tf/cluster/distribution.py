"""Strategies: how the replicas of a job are made and fed.

A batch is known as a whole to every process; each feeds the rows of its own
replicas. So where a row is computed follows from its number alone.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from albert_tf.cluster.clusters import (
    find_cluster,
    killed_after,
    start_watchdog,
    wait_for_workers,
)
from albert_tf.cluster.environment import unseen_gpus
from albert_tf.cluster.stops import TEMPORARY_FAILURE, RunStopped
from albert_tf.config import RuntimeConfig, UserError

# What an operation ends with when a worker or the TPU has gone.
_LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
)
# What a TPU that is still being made, or made anew, ends its start with.
_NOT_READY = (
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)
_MOST_CPUS = 16
# How long a process that has lost a worker or its TPU may take to end.
_ENDING_SECONDS = 30.0


def _default(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    if runtime.num_replicas > 1:
        raise UserError(
            f"num_replicas={runtime.num_replicas} needs --strategy=mirrored; "
            "default runs on one device."
        )
    return tf.distribute.get_strategy()


def _mirrored(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    if _visible_gpus():
        kind, devices = "GPU", tf.config.list_logical_devices("GPU")
    else:
        kind, devices = "CPU", _cpus(runtime.num_replicas)
    if runtime.num_replicas > len(devices):
        raise UserError(
            f"num_replicas={runtime.num_replicas}, but this machine has "
            f"{len(devices)} {kind} devices."
        )
    names = [device.name for device in devices[: runtime.num_replicas or None]]
    # On CPUs the default all-reduce is made for accelerators' links, and two
    # such strategies of different size cannot live in one process.
    reduction = tf.distribute.ReductionToOneDevice() if kind == "CPU" else None
    return tf.distribute.MirroredStrategy(names, reduction)


def _visible_gpus() -> list:
    """Returns the GPUs that TensorFlow sees.

    Physical ones: to ask for logical devices would make them, and CPUs could
    not be divided any more.

    Raises:
        UserError: when the machine has GPUs and TensorFlow sees none.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if problem := unseen_gpus(len(gpus)):
        raise UserError(problem)
    return gpus


def _cpus(num_replicas: int) -> list:
    """Returns the logical CPUs, made now if the process still can."""
    if num_replicas > _MOST_CPUS:
        raise UserError(
            f"num_replicas={num_replicas} on CPUs: logical CPUs are for trying "
            f"out what several devices would do; at most {_MOST_CPUS}."
        )
    _divide_cpu(max(num_replicas, 1))
    return tf.config.list_logical_devices("CPU")


def _divide_cpu(number: int) -> None:
    physical = tf.config.list_physical_devices("CPU")[0]
    try:
        if not tf.config.get_logical_device_configuration(physical):
            tf.config.set_logical_device_configuration(
                physical, [tf.config.LogicalDeviceConfiguration()] * number
            )
    except RuntimeError:
        # TensorFlow has started: what it has is what there is, and the
        # caller says so where that is too little.
        pass


def _multi_worker(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    gpus = _visible_gpus()
    if runtime.num_replicas > max(len(gpus), 1):
        raise UserError(
            f"num_replicas={runtime.num_replicas}, but a worker on this "
            f"machine has {len(gpus)} GPUs; without one it is one replica: "
            "start more workers."
        )
    if gpus and runtime.num_replicas:
        tf.config.set_visible_devices(gpus[: runtime.num_replicas], "GPU")
    cluster = find_cluster(runtime.cluster)
    wait_for_workers(cluster, runtime.cluster_timeout_secs)
    os.environ["TF_CONFIG"] = cluster.tf_config()
    implementation = tf.distribute.experimental.CommunicationImplementation
    # Named, and not left to TensorFlow: what it chooses by itself sums in
    # another order from one run to the next.
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=implementation.NCCL if gpus else implementation.RING
    )
    try:
        # All were there a moment ago; one may have gone since.
        with killed_after(
            runtime.cluster_timeout_secs,
            f"worker {cluster.index}: the cluster did not come together in "
            f"{runtime.cluster_timeout_secs:g} seconds; killed.",
        ):
            strategy = tf.distribute.MultiWorkerMirroredStrategy(
                communication_options=options
            )
    except RuntimeError as error:
        raise UserError(
            "strategy=multi_worker must be made once in a process, before "
            f"TensorFlow computes anything: {error}"
        ) from None
    if threading.current_thread() is threading.main_thread():
        # TensorFlow has put a handler of its own, which ends nothing, before
        # what Python still believes to be in force.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    return strategy


def _tpu(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=runtime.tpu
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except _NOT_READY as error:
        raise RunStopped(
            f"tpu={runtime.tpu!r} does not answer ({_reason(error)}): start "
            "the same command again.",
            TEMPORARY_FAILURE,
        ) from error
    except (ValueError, OSError, tf.errors.OpError) as error:
        said = str(error).partition("\n")[0]
        raise UserError(f"tpu={runtime.tpu!r} cannot be used: {said}") from None
    return tf.distribute.TPUStrategy(resolver)


STRATEGIES: dict[str, Callable[[RuntimeConfig], tf.distribute.Strategy]] = {
    "default": _default,
    "mirrored": _mirrored,
    "multi_worker": _multi_worker,
    "tpu": _tpu,
}


def make_strategy(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    """Returns the strategy; 0 replicas means every device of the machine.

    On a machine without GPUs `mirrored` makes num_replicas logical CPUs.
    multi_worker must be made before TensorFlow has computed anything.

    Raises:
        UserError: for more replicas than devices, GPUs that TensorFlow does
            not see, or no cluster.
        RunStopped: when a worker of the cluster is missing, or a TPU does not
            answer.
    """
    return STRATEGIES[runtime.strategy](runtime)


def _local_replicas(strategy: tf.distribute.Strategy) -> tuple[int, ...]:
    """Returns the numbers, among all replicas, of this process's own."""
    return strategy.experimental_local_results(
        strategy.experimental_distribute_values_from_function(
            lambda context: context.replica_id_in_sync_group
        )
    )


def is_alone(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process feeds every replica."""
    return len(_local_replicas(strategy)) == strategy.num_replicas_in_sync


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes what is there once in a run."""
    return strategy.extended.should_checkpoint


def padded_batch_size(batch_size: int, strategy: tf.distribute.Strategy) -> int:
    """Returns the least number of rows >= batch_size that replicas share.

    The rows that are too many are to have weight 0.
    """
    replicas = strategy.num_replicas_in_sync
    return -(-batch_size // replicas) * replicas


def local_rows(batch_size: int, strategy: tf.distribute.Strategy) -> range:
    """Returns which rows of the padded global batch this process feeds."""
    share = (
        padded_batch_size(batch_size, strategy) // strategy.num_replicas_in_sync
    )
    replicas = _local_replicas(strategy)
    return range(replicas[0] * share, (replicas[-1] + 1) * share)


def distribute_rows(
    strategy: tf.distribute.Strategy,
    rows: dict[str, np.ndarray],
    axis: int = 0,
) -> dict[str, object]:
    """Returns this process's rows, spread over its replicas.

    Args:
        strategy: the replicas.
        rows: arrays with the rows of `local_rows`, in order, along `axis`.
        axis: 1 for `[steps, rows, ...]`.
    """
    if strategy.num_replicas_in_sync == 1:
        return {name: tf.constant(value) for name, value in rows.items()}
    replicas = _local_replicas(strategy)
    shares = {
        name: np.split(value, len(replicas), axis)
        for name, value in rows.items()
    }

    def of_replica(context: tf.distribute.ReplicaContext) -> dict:
        number = replicas.index(context.replica_id_in_sync_group)
        return {
            name: tf.constant(share[number]) for name, share in shares.items()
        }

    return strategy.experimental_distribute_values_from_function(of_replica)


def broadcast(strategy: tf.distribute.Strategy, value: float) -> float:
    """Returns the chief's value on every worker, once all have asked.

    So it is a barrier too: every worker must call it, equally often.
    """
    if is_alone(strategy):
        return value
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(
            0.0 if context.replica_id_in_sync_group else value, tf.float64
        )
    )
    return float(strategy.reduce(tf.distribute.ReduceOp.SUM, values, None))


def all_gather(strategy: tf.distribute.Strategy, value: float) -> list[float]:
    """Returns what each worker gives here, in order; a barrier too."""
    if is_alone(strategy):
        return [value]
    replicas = strategy.num_replicas_in_sync
    first = _local_replicas(strategy)[0]

    def of_replica(context: tf.distribute.ReplicaContext) -> tf.Tensor:
        number = context.replica_id_in_sync_group
        mine = number == first
        return tf.one_hot(number, replicas, value * mine, 0.0, None, "double")

    values = strategy.experimental_distribute_values_from_function(of_replica)
    found = strategy.reduce(tf.distribute.ReduceOp.SUM, values, None)
    return found.numpy()[:: len(_local_replicas(strategy))].tolist()


@contextlib.contextmanager
def lost_workers(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Ends the run in order when a worker or a TPU is lost in the context.

    The other workers learn of it in 10 seconds at most, from TensorFlow's
    heartbeats, also when it was only stopped. A cluster cannot be mended, so
    every worker has to end; nor can a TPU's connection. In a single process
    on CPUs and GPUs errors stay what they are.

    Raises:
        RunStopped: with TEMPORARY_FAILURE, for whoever starts all again.
    """
    try:
        yield
    except _LOST as error:
        if isinstance(strategy, tf.distribute.TPUStrategy):
            lost, then = "the TPU", "start the same command again."
        elif is_alone(strategy):
            raise
        else:
            lost = "a worker"
            then = "every worker ends; start the whole job again."
        # What remains to be closed may wait for the lost one.
        start_watchdog(
            _ENDING_SECONDS,
            f"not ended {_ENDING_SECONDS:g} seconds after {lost} was lost; "
            "killed.",
        )
        raise RunStopped(
            f"{lost} was lost ({_reason(error)}): {then}", TEMPORARY_FAILURE
        ) from error


def _reason(error: tf.errors.OpError) -> str:
    """Returns the line in which TensorFlow says why, without its prefix."""
    lines = str(error.message).strip().splitlines() or [""]
    # Out of a compiled step it comes below "Graph execution error".
    why = [line for line in lines if "Collective ops is aborted" in line]
    said = (why or lines)[0].rpartition("}} ")[2].rstrip(": ")
    return f"{type(error).__name__}: {said}"


@contextlib.contextmanager
def out_of_memory() -> Iterator[None]:
    """Raises a UserError where a device's memory runs out in the context."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        # "OOM when allocating tensor ..."; XLA: "Out of memory while ...".
        said = str(error.message).strip().splitlines() or [""]
        why = [ln for ln in said if "OOM" in ln or "ut of memory" in ln] or said
        raise UserError(
            f"memory has run out ({why[0].rpartition('}} ')[2]}): give a "
            "smaller --micro_batch_size, --precision=bfloat16 or "
            "--remat=full; docs/performance.md shows what fits."
        ) from error
