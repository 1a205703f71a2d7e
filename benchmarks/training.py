"""The stages that measure training: speed, memory, activation checkpointing."""

import dataclasses
import functools
import os
import statistics
from collections.abc import Callable
from typing import Any

from albert_tf.cluster.memory import peak_resident
from albert_tf.config import REMAT, override
from benchmarks.harness import (
    Stage,
    Turn,
    in_fresh_process,
    mean_seconds,
    seconds_of,
)
from benchmarks.libraries import (
    OURS,
    POOLED,
    STATES,
    TRAINING,
    Batch,
    Jobs,
    all_sides,
)
from benchmarks.workload import Workload, random_batch
from benchmarks.workspace import Workspace
from bin import command_line

_MIB = 2**20
_TURN_SECONDS = 2.0
# Calls after the first, which traces and compiles.
_WARM_UP = 2
_MEMORY_STEPS = 3


def _training(workspace: Workspace) -> dict[str, Turn]:
    command_line.load_tensorflow()
    work = workspace.work
    batch = random_batch(work)
    sides: dict[str, Turn] = {}
    for name, (make, variant) in all_sides(work, workspace.peers).items():
        jobs = make(work, batch, variant)
        for job, call in jobs.items():
            first = seconds_of(call)
            warm = min(seconds_of(call) for _ in range(_WARM_UP))
            command_line.log(f"{name}, {job}: first {first:.3g} s, {warm:.3g}")
        sides[name] = functools.partial(_turn, jobs)
    sides[OURS] = functools.partial(_our_turn, work, sides[OURS])
    return sides


def _turn(jobs: Jobs) -> dict[str, float]:
    return {
        f"{job}, s": mean_seconds(call, _TURN_SECONDS)
        for job, call in jobs.items()
    }


def _our_turn(work: Workload, turn: Turn) -> dict[str, float]:
    """Adds the share of the machine's rate of matrix multiplication."""
    from albert_tf.cluster.matmul_rate import matmul_rate

    rate = matmul_rate(work.training.precision)
    found = dict(turn())
    for job, flops in flops_of(work).items():
        share = flops / found[f"{job}, s"] / rate
        found[f"{job}, % of matrix multiplication"] = 100 * share
    return found


def flops_of(work: Workload) -> dict[str, int]:
    """Returns the operations of our jobs."""
    from albert_tf.modeling.accounting import encoder_flops, training_flops

    shape = {"batch_size": work.batch_size, "seq_length": work.seq_length}
    encoder = functools.partial(encoder_flops, work.model, **shape)
    training = functools.partial(
        training_flops,
        work.model,
        **shape,
        num_predictions=work.num_predictions,
    )
    return {
        TRAINING: training(read_positions_only=True),
        POOLED: encoder(read_positions_only=True),
        STATES: encoder(read_positions_only=False),
    }


TRAINING_SPEED = Stage(
    "pretraining steps and forward passes on random tokens, all libraries by "
    "turns in one process; ratios above 1: ours takes less time",
    _training,
)


def _memory(workspace: Workspace) -> dict[str, Turn]:
    work = workspace.work
    return {
        name: functools.partial(
            *(in_fresh_process, workspace.cores, peak_of_side),
            *(make, work, variant, name == OURS or "keras" in name),
        )
        for name, (make, variant) in all_sides(work, workspace.peers).items()
        if "weights" not in variant
    }


def peak_of_side(
    make: Callable[[Workload, Batch, str], Jobs],
    work: Workload,
    variant: str,
    on_tensorflow: bool,
) -> dict[str, float]:
    """Returns the cost of some training steps.

    Call in a fresh process: everything in it counts.
    """
    if on_tensorflow:
        command_line.load_tensorflow()
    step = make(work, random_batch(work), variant)[TRAINING]
    seconds = [seconds_of(step) for _ in range(_MEMORY_STEPS)]
    return {"resident, MiB": peak_resident() / _MIB, "step, s": min(seconds)}


MEMORY = Stage(
    "what is resident at the peak of training steps, each library in a process "
    "of its own, libraries included; ratios above 1: ours takes less",
    _memory,
)


def _recomputation(workspace: Workspace) -> dict[str, Turn]:
    work = workspace.work
    return {
        f"--remat={remat}": functools.partial(
            in_fresh_process,
            workspace.cores,
            step_memory,
            dataclasses.replace(
                work, training=override(work.training, {"remat": remat})
            ),
        )
        for remat in REMAT
    }


def step_memory(work: Workload) -> dict[str, float]:
    """Returns the cost of forward and backward of a pretraining batch."""
    return _cost(_gradient_step, work)


def _cost(
    make_step: Callable[..., Callable[[], float]], *arguments: object
) -> dict[str, float]:
    """Returns the cost of a step, which returns the norm of its gradients.

    Memory is at its peak: that of tensors, weights included, and of the
    process. Call in a fresh process: TensorFlow must be loaded with the
    allocator that counts.
    """
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
    # A bound beyond any machine.
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(1 << 24)
    command_line.load_tensorflow()
    import tensorflow as tf

    step = make_step(*arguments)
    norm = step()
    seconds = [seconds_of(step) for _ in range(_MEMORY_STEPS)]
    tensors = tf.config.experimental.get_memory_info("CPU:0")["peak"]
    return {
        "tensors, MiB": tensors / _MIB,
        "resident, MiB": peak_resident() / _MIB,
        "step, s": statistics.median(seconds),
        "gradient norm": norm,
    }


def _gradient_step(work: Workload) -> Callable[[], float]:
    """Returns a call that returns the norm of the gradients of a batch."""
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
    def step() -> Any:
        keys = example_keys(1, tf.constant(0), tf.range(work.batch_size))
        with tf.GradientTape() as tape:
            outputs = model(
                batch, dropout_keys=keys, training=True, heads_only=True
            )
            losses = [
                head.loss(outputs, batch) for head in model.heads.values()
            ]
            loss = tf.add_n([value / weight for value, weight in losses])
        gradients = tape.gradient(loss, variables)
        return tf.linalg.global_norm(
            [tf.convert_to_tensor(gradient) for gradient in gradients]
        )

    return lambda: float(step())


RECOMPUTATION = Stage(
    "forward and backward of a training step, by what --remat computes again "
    "for the gradient instead of keeping it",
    _recomputation,
)


# Functions of modeling/attention.py, by what is in memory at a time.
ATTENTION_FUNCTIONS = {
    "all weights at once": "attend",
    "chunks of queries": "attend_in_chunks",
}


def _attention(workspace: Workspace) -> dict[str, Turn]:
    return {
        side: functools.partial(
            *(in_fresh_process, workspace.cores),
            *(attention_memory, name, workspace.work),
        )
        for side, name in ATTENTION_FUNCTIONS.items()
    }


def attention_memory(name: str, work: Workload) -> dict[str, float]:
    """Returns the cost of attention alone, of a batch without padding."""
    return _cost(_attention_step, name, work)


def _attention_step(name: str, work: Workload) -> Callable[[], float]:
    """Returns a call that returns the norm of the gradients of its inputs."""
    import keras
    import tensorflow as tf

    from albert_tf.modeling import attention
    from albert_tf.training.trainer import DTYPE_POLICIES

    heads = work.model.num_attention_heads
    shape = (work.batch_size, work.seq_length)
    policy = keras.DTypePolicy(DTYPE_POLICIES[work.training.precision])
    dtype = policy.compute_dtype
    states = [
        tf.cast(
            tf.random.stateless_normal(
                (*shape, heads, work.model.hidden_size // heads), (1, seed)
            ),
            dtype,
        )
        for seed in range(3)
    ]
    mask_logits = attention.mask_to_logits(tf.ones(shape), dtype)
    positions = tf.range(work.seq_length)[None]

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(states)
            context, _ = getattr(attention, name)(
                *states, mask_logits, positions, lambda weights, _: weights
            )
            loss = tf.reduce_sum(tf.cast(context, "float32") ** 2)
        return tf.linalg.global_norm(tape.gradient(loss, states))

    return lambda: float(step())


ATTENTION = Stage(
    "forward and backward of attention alone, without dropout",
    _attention,
)
