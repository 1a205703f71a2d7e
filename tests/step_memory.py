"""The memory of a step, counted by TensorFlow.

A module of its own: its process imports it, and no tensor may exist before the
allocator is chosen.
"""

import os

import tensorflow as tf

from albert_tf.config import REMAT, ModelConfig, override
from albert_tf.modeling.models import AlbertModel


def memory_of_a_step(cores):
    """Returns the peak memory of a step for each way of REMAT.

    In units of the weights, in a process that has used nothing of TensorFlow.
    """
    os.sched_setaffinity(0, cores)
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
    config = override(
        ModelConfig(),
        {
            "vocab_size": 8,
            "hidden_size": 256,
            "intermediate_size": 1024,
            "num_attention_heads": 4,
            "max_position_embeddings": 128,
            "num_hidden_layers": 8,
        },
    )
    model = AlbertModel(config)
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = dict.fromkeys(names, tf.ones([2, 128], tf.int32))
    size = sum(v.value.numpy().nbytes for v in model.weights)

    def step():
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = tf.reduce_sum(outputs["pooled_output"] ** 2)
        return tape.gradient(loss, [v.value for v in model.trainable_variables])

    memory = tf.config.experimental
    found = []
    for remat in REMAT:
        model.encoder.remat = remat
        run = tf.function(step, autograph=False)
        run.get_concrete_function()
        # On a busy machine operations wait, and so does what they would free.
        peaks = []
        for _ in range(4):
            memory.reset_memory_stats("CPU:0")
            before = memory.get_memory_info("CPU:0")["current"]
            run()
            peaks.append(memory.get_memory_info("CPU:0")["peak"] - before)
        found.append(min(peaks) / size)
    return found
