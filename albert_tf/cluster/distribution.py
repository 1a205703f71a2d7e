"""Distribution strategies: replicas, their rows, and lost workers.

Every process can compute any row of a global batch and feeds those of its own
replicas, so the replica of a row follows from its number alone.
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
    start_watchdog,
    wait_for_workers,
)
from albert_tf.cluster.environment import unseen_gpus
from albert_tf.cluster.stops import TEMPORARY_FAILURE, RunStopped
from albert_tf.config import RuntimeConfig, UserError, lookup, require
from albert_tf.io.tensorflow_messages import reason_of

# Errors at the start while a TPU is being created or recreated.
_NOT_READY = (
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.UnavailableError,
)
# Errors of operations after a worker or the TPU was lost.
_LOST = (
    *_NOT_READY,
    tf.errors.CancelledError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
)
# Logical CPUs are for trying out several devices.
_MAX_CPUS = 16
# Limit for a process that has lost a worker or its TPU to end.
_ENDING_SECONDS = 30.0


def worker_hosts(strategy: tf.distribute.Strategy) -> list[str]:
    """Returns the host of each worker; one, without a name, of no cluster."""
    cluster = getattr(strategy, "cluster_resolver", None)
    if cluster is None or not cluster.cluster_spec().jobs:
        return [""]
    addresses = cluster.cluster_spec().job_tasks("worker")
    return [address.rpartition(":")[0] for address in addresses]


def _check_replicas(runtime: RuntimeConfig, most: int, devices: str) -> None:
    require(
        runtime.num_replicas <= most,
        f"num_replicas={runtime.num_replicas}: strategy={runtime.strategy} has "
        f"{most} {devices}.",
    )


def _default(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    _check_replicas(runtime, 1, "device; --strategy=mirrored has several")
    return tf.distribute.get_strategy()


def _mirrored(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    if _visible_gpus():
        kind, devices = "GPU", tf.config.list_logical_devices("GPU")
    else:
        kind, devices = "CPU", _cpus(runtime.num_replicas)
    _check_replicas(runtime, len(devices), f"{kind} devices on this machine")
    names = [device.name for device in devices[: runtime.num_replicas or None]]
    # The default all-reduce is for accelerators: on CPUs two strategies of
    # different size would not work in one process.
    reduction = tf.distribute.ReductionToOneDevice() if kind == "CPU" else None
    return tf.distribute.MirroredStrategy(names, reduction)


def _visible_gpus() -> list:
    """Returns the physical GPUs; UserError if TensorFlow misses existing ones.

    Listing logical devices would create them, and CPUs could not be divided
    any more.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if problem := unseen_gpus(len(gpus)):
        raise UserError(problem)
    return gpus


def _cpus(num_replicas: int) -> list:
    """Returns the logical CPUs, created now if the process still can."""
    physical = tf.config.list_physical_devices("CPU")[0]
    # RuntimeError: TensorFlow has started, and the number is fixed.
    with contextlib.suppress(RuntimeError):
        if not tf.config.get_logical_device_configuration(physical):
            tf.config.set_logical_device_configuration(
                physical,
                [tf.config.LogicalDeviceConfiguration()]
                * min(max(num_replicas, 1), _MAX_CPUS),
            )
    return tf.config.list_logical_devices("CPU")


def _multi_worker(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    gpus = _visible_gpus()
    _check_replicas(
        runtime, max(len(gpus), 1), "device for each worker; start more workers"
    )
    if gpus and runtime.num_replicas:
        tf.config.set_visible_devices(gpus[: runtime.num_replicas], "GPU")
    cluster = find_cluster(runtime.cluster)
    wait_for_workers(cluster, runtime.cluster_timeout_secs)
    os.environ["TF_CONFIG"] = cluster.tf_config()
    implementation = tf.distribute.experimental.CommunicationImplementation
    # Explicit: TensorFlow's own choice sums in a different order from run to
    # run.
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=implementation.NCCL if gpus else implementation.RING
    )
    try:
        # A worker may be lost since it answered.
        with start_watchdog(
            runtime.cluster_timeout_secs,
            f"worker {cluster.index}: the workers did not connect within "
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
        # TensorFlow has replaced the handler by one that does not terminate,
        # behind Python's back.
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
            f"tpu={runtime.tpu!r} does not answer ({type(error).__name__}: "
            f"{_reason(error)}): start the same command again.",
            TEMPORARY_FAILURE,
        ) from error
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise UserError(
            f"tpu={runtime.tpu!r} cannot be used: {reason_of(str(error))}"
        ) from None
    return tf.distribute.TPUStrategy(resolver)


# A row adds a strategy.
STRATEGIES: dict[str, Callable[[RuntimeConfig], tf.distribute.Strategy]] = {
    "default": _default,
    "mirrored": _mirrored,
    "multi_worker": _multi_worker,
    "tpu": _tpu,
}


def make_strategy(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    """Returns the strategy; 0 replicas means every device of the machine.

    Raises:
        UserError: for settings that this machine has no devices for.
        RunStopped: when a worker is missing, or a TPU does not answer.
    """
    build = lookup(STRATEGIES, runtime.strategy, "strategy", extensible=True)
    return build(runtime)


def _local_replicas(strategy: tf.distribute.Strategy) -> tuple[int, ...]:
    """Returns the global numbers of this process's replicas."""
    return strategy.experimental_local_results(
        strategy.experimental_distribute_values_from_function(
            lambda context: context.replica_id_in_sync_group
        )
    )


def is_alone(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process feeds every replica."""
    return len(_local_replicas(strategy)) == strategy.num_replicas_in_sync


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes the files of the run."""
    return strategy.extended.should_checkpoint


def local_rows(batch_size: int, strategy: tf.distribute.Strategy) -> range:
    """Returns the rows of the global batch that this process feeds.

    Rows from batch_size on are padding, up to a multiple of the replicas;
    callers give them weight 0.
    """
    share = -(-batch_size // strategy.num_replicas_in_sync)
    replicas = _local_replicas(strategy)
    return range(replicas[0] * share, (replicas[-1] + 1) * share)


def distribute_rows(
    strategy: tf.distribute.Strategy,
    rows: dict[str, np.ndarray],
    axis: int = 0,
) -> dict[str, object]:
    """Returns this process's rows (`local_rows`), spread over its replicas.

    They lie along `axis`, which is 1 for `[steps, rows, ...]`.
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
    """Returns the chief's value on every worker; a barrier too.

    Every worker must call it, equally often.
    """
    return all_gather(strategy, value)[0]


def all_gather(strategy: tf.distribute.Strategy, value: float) -> list[float]:
    """Returns the values of all workers, the chief's first; a barrier too."""
    if is_alone(strategy):
        return [value]
    replicas = strategy.num_replicas_in_sync
    first = _local_replicas(strategy)[0]

    def of_replica(context: tf.distribute.ReplicaContext) -> tf.Tensor:
        number = context.replica_id_in_sync_group
        mine = value if number == first else 0.0
        return tf.one_hot(number, replicas, mine, 0.0, None, "double")

    values = strategy.experimental_distribute_values_from_function(of_replica)
    found = strategy.reduce(tf.distribute.ReduceOp.SUM, values, None)
    return found.numpy()[:: len(_local_replicas(strategy))].tolist()


@contextlib.contextmanager
def lost_workers(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Raises RunStopped when a worker or a TPU is lost in the context.

    Neither a cluster nor a TPU's connection can be repaired, so every worker
    ends, with TEMPORARY_FAILURE. In a single process on CPUs and GPUs errors
    are not changed.
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
        # Closing the rest may wait for the lost one.
        start_watchdog(
            _ENDING_SECONDS,
            f"not ended {_ENDING_SECONDS:g} seconds after {lost} was lost; "
            "killed.",
        )
        reason = _reason(error, "Collective ops is aborted")
        raise RunStopped(
            f"{lost} was lost ({type(error).__name__}: {reason}): {then}",
            TEMPORARY_FAILURE,
        ) from error


def _reason(error: tf.errors.OpError, *signs: str) -> str:
    """Returns the line of an error with one of the signs, or its reason."""
    message = str(error.message)
    lines = message.splitlines()
    why = [line for line in lines if any(sign in line for sign in signs)]
    return reason_of(why[0] if why else message)


@contextlib.contextmanager
def out_of_memory() -> Iterator[None]:
    """Raises a UserError where a device's memory runs out in the context."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        # "OOM when allocating tensor ..."; XLA: "Out of memory while ...".
        reason = _reason(error, "OOM", "ut of memory")
        raise UserError(
            f"memory has run out ({reason}): give a smaller "
            "--micro_batch_size, --precision=bfloat16 or --remat=full; "
            "docs/performance.md shows what fits."
        ) from error
