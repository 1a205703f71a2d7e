"""Measures the memory of forward and backward, in a process of its own."""

import statistics
import time
from typing import NamedTuple

from albert_tf.cluster.memory import peak_resident
from albert_tf.jobs.workload import Workload, random_batch
from bin.benchmarking.peers import SideKind

# Steps of which the peak or the time is taken.
_STEPS = 3


class StepMemory(NamedTuple):
    """What forward and backward of one batch took."""

    tensor_bytes: int  # at their peak, weights included
    peak_bytes: int  # of the process, resident
    seconds: float  # of the steps after the first, their median
    gradient_norm: float


def peak_of_side(kind: SideKind, work: Workload, variant: str) -> int:
    """Returns the bytes resident at the peak of a side's training steps.

    Call in a process of its own: the libraries count, and so would whatever
    else it has done.
    """
    side = kind.make(work, random_batch(work), variant)
    for _ in range(_STEPS):
        side.train_step()
    return peak_resident()


def measure_step(work: Workload) -> StepMemory:
    """Returns what forward and backward of masked LM and sentence order took.

    Call in a process of its own: peaks are those of the whole process. The
    bytes of tensors are counted only where TF_CPU_ALLOCATOR_USE_BFC=1 was in
    the environment before TensorFlow was loaded.
    """
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
            loss = tf.add_n(
                [
                    value / weight
                    for value, weight in (
                        head.loss(outputs, batch)
                        for head in model.heads.values()
                    )
                ]
            )
        gradients = tape.gradient(loss, variables)
        return tf.linalg.global_norm(
            [tf.convert_to_tensor(gradient) for gradient in gradients]
        )

    norm = float(step())
    seconds = []
    for _ in range(_STEPS):
        begin = time.perf_counter()
        float(step())
        seconds.append(time.perf_counter() - begin)
    return StepMemory(
        tensor_bytes=tf.config.experimental.get_memory_info("CPU:0")["peak"],
        peak_bytes=peak_resident(),
        seconds=statistics.median(seconds),
        gradient_norm=norm,
    )
