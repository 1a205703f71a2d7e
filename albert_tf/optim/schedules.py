"""The learning rate of every step: a warm-up, then one of DECAYS."""

import math
from collections.abc import Callable

import keras
from keras import ops

from albert_tf.config import OptimizerConfig

# What is left of the peak rate, from 1 to 0, as a function of the share of
# the decay that is still to come, from 1 to 0.
DECAYS: dict[str, Callable] = {
    "polynomial": lambda left, config: ops.power(left, config.decay_power),
    # (1 - cos(π · left)) / 2, without the difference of two like numbers.
    "cosine": lambda left, _: ops.square(ops.sin(math.pi / 2.0 * left)),
    "constant": lambda left, _: ops.ones_like(left),
}


def learning_rate_at(
    step: keras.KerasTensor | int, config: OptimizerConfig, num_train_steps: int
) -> keras.KerasTensor:
    """Returns the learning rate (scalar float32) of an update.

    Update number n counts from 1, so that the first one moves. Linear warm-up
    to the peak over num_warmup_steps, then the decay over the steps that are
    left, down to end_learning_rate after the last: continuous at the joint.
    A constant rate stays at its peak.

    With original_schedule, as google-research/albert computes it
    (optimization.py): updates count from 0, so that a warm-up begins with
    rate 0, and so does the decay, which is cut off where the warm-up ends.

    Args:
        step: scalar, updates made so far.
        config: the peak rate, warm-up and decay.
        num_train_steps: updates of the whole run.
    """
    warmup = float(config.num_warmup_steps)
    number = ops.cast(step, "float32")
    if config.original_schedule:
        decay_start, decay_steps = 0.0, float(num_train_steps)
    else:
        number = number + 1.0
        # The first update after the warm-up has the whole rate, too: without
        # a warm-up it is the first of all.
        decay_start, decay_steps = warmup + 1.0, num_train_steps - warmup
    rising = config.learning_rate * (number / max(warmup, 1.0))
    left = 1.0 - (number - decay_start) / max(decay_steps, 1.0)
    left = ops.clip(left, 0.0, 1.0)
    share = DECAYS[config.learning_rate_decay](left, config)
    end = config.end_learning_rate
    falling = (config.learning_rate - end) * share + end
    return ops.where(number < warmup, rising, falling)


def warm_up_warnings(
    config: OptimizerConfig, num_train_steps: int
) -> tuple[str, ...]:
    """Returns a line for the log where a run ends within its warm-up."""
    if config.num_warmup_steps <= num_train_steps:
        return ()
    return (
        f"num_warmup_steps={config.num_warmup_steps} is more than "
        f"num_train_steps={num_train_steps}: the learning rate never reaches "
        f"its peak of {config.learning_rate:g}.",
    )
