"""Times attention alone by Keras on JAX, on this machine's GPU, TPU or CPU.

KERAS_BACKEND=jax python -m benchmarks.devices.run_attention \\
    --forms=plain,cudnn --lengths=128,512,1024,4096 --num_tokens=32768

Forward and backward of the forms of attention in training, in bfloat16, without
dropout, for sequences of each length without padding. `plain` has chunks of 512
queries beyond 512 tokens, `with_weights` all weights at once. This repository,
`jax` and `keras` are needed, no TensorFlow. Prints a line of JSON for each.
"""

import json
import statistics
import time
from typing import Any

from absl import flags

from albert_tf.modeling.attention import FORMS, mask_to_logits
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


def run(
    form: str, shape: tuple[int, int, int, int], dtype: str, repeats: int
) -> dict[str, float]:
    """Returns seconds of a call and its temporary memory in bytes.

    Args:
        form: a row of FORMS.
        shape: of queries, keys and values, `[batch, seq, heads, size]`.
        dtype: in which they are.
        repeats: of the call, of which the median counts.
    """
    import jax
    import jax.numpy as jnp

    batch, length = shape[:2]
    states = [
        jax.random.normal(jax.random.key(seed), shape, dtype)
        for seed in range(3)
    ]
    mask_logits = mask_to_logits(jnp.ones((batch, length)), dtype)

    def loss(*states: Any) -> Any:
        context, _ = FORMS[form](
            *states,
            mask_logits=mask_logits,
            positions=jnp.arange(length)[None],
            dropout=lambda weights, _: weights,
        )
        return jnp.sum(jnp.square(context.astype("float32")))

    gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    executable = gradients.lower(*states).compile()
    memory = executable.memory_analysis()

    def timed() -> float:
        begin = time.perf_counter()
        jax.block_until_ready(executable(*states))
        return time.perf_counter() - begin

    timed()
    return {
        "seconds": statistics.median(timed() for _ in range(repeats)),
        "temporary_bytes": memory.temp_size_in_bytes,
    }


def main() -> None:
    for length in map(int, FLAGS.lengths):
        batch = max(FLAGS.num_tokens // length, 1)
        shape = (batch, length, FLAGS.num_heads, _HEAD_SIZE)
        for form in FLAGS.forms:
            found = run(form, shape, FLAGS.dtype, FLAGS.repeats)
            print(json.dumps({"form": form, "length": length, **found}))


if __name__ == "__main__":
    command_line.run(define_flags, main)
