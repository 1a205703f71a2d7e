"""Measures the memory and the time of one training step."""

import resource
import sys
import time
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import ModelConfig
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.models import AlbertForPretraining


class StepMemory(NamedTuple):
    """What forward and backward of one batch took."""

    tensor_bytes: int  # at their peak, weights included
    peak_bytes: int  # of the process, resident
    seconds: float  # of the second step: nothing is traced any more
    gradient_norm: float


def measure_step(
    config: ModelConfig, *, batch_size: int, max_seq_length: int, remat: bool
) -> StepMemory:
    """Returns what a step of masked LM and sentence order took.

    Call in a process of its own: peaks are those of the whole process. The
    bytes of tensors are counted only where TF_CPU_ALLOCATOR_USE_BFC=1 was in
    the environment before TensorFlow was loaded.

    Args:
        config: the architecture.
        batch_size: sequences.
        max_seq_length: tokens of each; 15 % are predicted.
        remat: whether the blocks are computed again for the gradient.
    """
    keras.utils.set_random_seed(1)
    model = AlbertForPretraining(config, remat=remat)
    variables = [variable.value for variable in model.trainable_variables]
    features, labels = _batch(config, batch_size, max_seq_length)

    @tf.function
    def step() -> tf.Tensor:
        keys = example_keys(1, tf.constant(0), tf.range(batch_size))
        with tf.GradientTape() as tape:
            outputs = model(features, dropout_keys=keys, training=True)
            loss = tf.add_n(
                [
                    value / weight
                    for value, weight in (
                        head.loss(outputs, labels)
                        for head in model.heads.values()
                    )
                ]
            )
        gradients = tape.gradient(loss, variables)
        return tf.linalg.global_norm(
            [tf.convert_to_tensor(gradient) for gradient in gradients]
        )

    step()
    begin = time.perf_counter()
    norm = float(step())
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, Linux kilobytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return StepMemory(
        tensor_bytes=tf.config.experimental.get_memory_info("CPU:0")["peak"],
        peak_bytes=peak * unit,
        seconds=seconds,
        gradient_norm=norm,
    )


def _batch(
    config: ModelConfig, batch_size: int, length: int
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Returns features and labels of random ids."""
    rng = np.random.default_rng(1)
    shape = (batch_size, length)
    slots = (batch_size, max(1, round(0.15 * length)))
    features = {
        "input_ids": rng.integers(config.vocab_size, size=shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.zeros(shape),
        "masked_lm_positions": rng.integers(length, size=slots),
    }
    labels = {
        "masked_lm_ids": rng.integers(config.vocab_size, size=slots),
        "sentence_order_labels": rng.integers(2, size=batch_size),
    }
    return tuple(
        {name: tf.constant(value, tf.int32) for name, value in part.items()}
        for part in (features, labels)
    )
