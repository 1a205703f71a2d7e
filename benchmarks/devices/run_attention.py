"""Times attention alone by Keras on JAX, on this machine's GPU, TPU or CPU.

KERAS_BACKEND=jax python -m benchmarks.devices.run_attention \\
    --forms=plain,cudnn --lengths=128,512,1024,4096 --num_tokens=32768
KERAS_BACKEND=jax python -m benchmarks.devices.run_attention \\
    --forms=with_weights,plain,pallas --chip=v5e

Forward and backward of the forms of attention in training, in bfloat16, without
dropout, for sequences of each length without padding. `plain` has chunks of 512
queries beyond 512 tokens, `with_weights` all weights at once. This repository,
`jax` and `keras` are needed, no TensorFlow. Prints a line of JSON for each.

With --chip nothing runs: the compiler of a TPU or GPU, without one, counts
memory, arithmetic and the memory's traffic, but none of the last two within
the kernels of Pallas and cuDNN.
"""

import json
import statistics
import time
from typing import Any

from absl import flags

from albert_tf.config import lookup, require
from albert_tf.modeling.attention import FORMS, mask_to_logits
from benchmarks.devices.chips import CHIPS, gpu_description
from benchmarks.devices.run_step import gpu_devices, report, tpu_devices
from bin import command_line

FLAGS = flags.FLAGS
_HEAD_SIZE = 64


def define_flags() -> None:
    flags.DEFINE_list(
        "forms", ["with_weights", "plain"], f"Of {', '.join(FORMS)}."
    )
    flags.DEFINE_list("lengths", ["128", "512", "1024", "4096"], "In tokens.")
    flags.DEFINE_integer("num_tokens", 32768, "Of a batch.", lower_bound=1)
    flags.DEFINE_integer("num_heads", 12, "Of 64 values each.", lower_bound=1)
    flags.DEFINE_string("dtype", "bfloat16", "Of the states.")
    flags.DEFINE_integer("repeats", 20, "Calls to time.", lower_bound=1)
    flags.DEFINE_enum(
        "chip", None, list(CHIPS), "Compile for this chip, and run nothing."
    )


def compiled(
    form: str, shape: tuple[int, int, int, int], dtype: str, device: Any
) -> Any:
    """Returns the gradients of queries, keys and values, for the device.

    Args:
        form: a row of FORMS.
        shape: of queries, keys and values, `[batch, seq, heads, size]`.
        dtype: in which they are.
        device: one of JAX's, or of a topology.
    """
    import jax
    import jax.numpy as jnp

    batch, length = shape[:2]
    mask_logits = mask_to_logits(jnp.ones((batch, length)), dtype)

    def loss(*states: Any) -> Any:
        context, _ = FORMS[form](
            *states,
            mask_logits=mask_logits,
            positions=jnp.arange(length)[None],
            dropout=lambda weights, _: weights,
        )
        return jnp.sum(jnp.square(context.astype("float32")))

    there = jax.sharding.SingleDeviceSharding(device)
    states = [jax.ShapeDtypeStruct(shape, dtype, sharding=there)] * 3
    return jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(*states).compile()


def median_seconds(executable: Any, repeats: int) -> float:
    """Returns the time of a call on random states."""
    import jax

    (shapes, _) = executable.in_avals
    states = [
        jax.random.normal(jax.random.key(seed), shape.shape, shape.dtype)
        for seed, shape in enumerate(shapes)
    ]

    def timed() -> float:
        begin = time.perf_counter()
        jax.block_until_ready(executable(*states))
        return time.perf_counter() - begin

    timed()
    return statistics.median(timed() for _ in range(repeats))


def main() -> None:
    for form in FLAGS.forms:
        lookup(FORMS, form, "forms")
    for length in FLAGS.lengths:
        require(
            length.isdecimal() and int(length) > 0,
            f"--lengths: expected whole numbers above 0, got {length!r}.",
        )
    import jax

    chip = FLAGS.chip
    if chip and CHIPS[chip].gpu:
        device = gpu_devices(gpu_description(chip))[0]
    elif chip:
        device = tpu_devices(f"{chip}:{CHIPS[chip].topologies[1]}")[0]
    else:
        device = jax.devices()[0]
    for length in map(int, FLAGS.lengths):
        batch = max(FLAGS.num_tokens // length, 1)
        shape = (batch, length, FLAGS.num_heads, _HEAD_SIZE)
        for form in FLAGS.forms:
            executable = compiled(form, shape, FLAGS.dtype, device)
            found = report(executable.runtime_executable())
            if not chip:
                found["seconds"] = median_seconds(executable, FLAGS.repeats)
            print(json.dumps({"form": form, "length": length, **found}))


if __name__ == "__main__":
    command_line.run(define_flags, main)
