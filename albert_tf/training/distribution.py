"""Strategies: how the replicas of a job are made and fed."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from albert_tf.config import UserError


def _default(num_replicas: int) -> tf.distribute.Strategy:
    if num_replicas > 1:
        raise UserError(
            f"num_replicas={num_replicas} needs --strategy=mirrored; "
            "default runs on one device."
        )
    return tf.distribute.get_strategy()


def _mirrored(num_replicas: int) -> tf.distribute.Strategy:
    # Physical ones: to ask for logical devices would make them, and CPUs
    # could not be divided any more.
    if tf.config.list_physical_devices("GPU"):
        kind, devices = "GPU", tf.config.list_logical_devices("GPU")
    else:
        kind, devices = "CPU", _cpus(num_replicas)
    if num_replicas > len(devices):
        raise UserError(
            f"num_replicas={num_replicas}, but this machine has "
            f"{len(devices)} {kind} devices."
        )
    names = [device.name for device in devices[: num_replicas or None]]
    # On CPUs the default all-reduce is made for accelerators' links, and two
    # such strategies of different size cannot live in one process.
    reduction = tf.distribute.ReductionToOneDevice() if kind == "CPU" else None
    return tf.distribute.MirroredStrategy(names, reduction)


def _cpus(num_replicas: int) -> list:
    """Returns the logical CPUs, made now if the process still can."""
    physical = tf.config.list_physical_devices("CPU")[0]
    wanted = max(num_replicas, 1)
    try:
        if not tf.config.get_logical_device_configuration(physical):
            tf.config.set_logical_device_configuration(
                physical, [tf.config.LogicalDeviceConfiguration()] * wanted
            )
    except RuntimeError:
        # TensorFlow has started: what it has is what there is, and the
        # caller says so where that is too little.
        pass
    return tf.config.list_logical_devices("CPU")


STRATEGIES: dict[str, Callable[[int], tf.distribute.Strategy]] = {
    "default": _default,
    "mirrored": _mirrored,
}


def make_strategy(name: str, num_replicas: int = 0) -> tf.distribute.Strategy:
    """Returns the strategy; 0 replicas means every device of the machine.

    On a machine without GPUs `mirrored` makes num_replicas logical CPUs.

    Raises:
        UserError: for an unknown name or more replicas than devices.
    """
    if name not in STRATEGIES:
        raise UserError(
            f"strategy={name!r} is not one of {', '.join(STRATEGIES)}."
        )
    return STRATEGIES[name](num_replicas)


def check_batch_size(
    name: str, batch_size: int, strategy: tf.distribute.Strategy
) -> None:
    """Raises UserError unless the global batch divides over the replicas."""
    replicas = strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise UserError(
            f"{name}={batch_size} does not divide over {replicas} replicas; "
            f"use a multiple of {replicas}."
        )


def distribute_batch(
    strategy: tf.distribute.Strategy, batch: dict[str, np.ndarray]
) -> dict[str, object]:
    """Returns the batch with each array's rows spread over the replicas."""
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return {name: tf.constant(value) for name, value in batch.items()}

    def rows(value: np.ndarray) -> object:
        share = len(value) // replicas

        def of_replica(context: tf.distribute.ReplicaContext) -> tf.Tensor:
            first = context.replica_id_in_sync_group * share
            return tf.constant(value[first : first + share])

        return strategy.experimental_distribute_values_from_function(of_replica)

    return {name: rows(value) for name, value in batch.items()}
