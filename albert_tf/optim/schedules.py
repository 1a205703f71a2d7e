"""Learning-rate schedules: a warm-up, then one of DECAYS."""

import math
from collections.abc import Callable

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import OptimizerConfig

# Factor of the peak rate, as a function of the remaining share of the decay;
# both from 1 to 0.
DECAYS: dict[str, Callable] = {
    "polynomial": lambda left, config: ops.power(left, config.decay_power),
    # (1 - cos(π · left)) / 2, without cancellation.
    "cosine": lambda left, _: ops.square(ops.sin(math.pi / 2.0 * left)),
    "constant": lambda left, _: ops.ones_like(left),
}


def learning_rate_at(
    step: Tensor | int, config: OptimizerConfig, num_train_steps: int
) -> Tensor:
    """Returns the learning rate (scalar float32) after `step` steps.

    Steps, skipped ones too, count from 1: the first has a rate above 0. Warm-up
    is linear to the peak in num_warmup_steps, then the decay over the others
    to end_learning_rate after the last, without a jump. A constant rate stays
    at its peak.

    With original_schedule as in google-research/albert (optimization.py):
    steps count from 0, so that the first of a warm-up has rate 0, and the
    decay counts from the start of the run, so that the rate jumps after the
    warm-up.
    """
    warmup = float(config.num_warmup_steps)
    number = ops.cast(step, "float32")
    if config.original_schedule:
        decay_start, decay_steps = 0.0, float(num_train_steps)
    else:
        number = number + 1.0
        # The first step after the warm-up, or of all, has the peak rate.
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
    reached = config.num_warmup_steps + config.original_schedule
    if reached <= num_train_steps:
        return ()
    return (
        f"num_warmup_steps={config.num_warmup_steps} is too many for "
        f"num_train_steps={num_train_steps}: the learning rate never reaches "
        f"its peak of {config.learning_rate:g}.",
    )
