"""Arithmetic of pretraining a row, and its hours on machines that are known."""

import itertools

from albert_tf.config import PretrainConfig
from albert_tf.config.schedules import parse_schedule
from albert_tf.modeling.accounting import training_flops
from albert_tf.training.depth_schedule import DepthSchedule

# FLOP/s of bfloat16 products by the makers' figures, all chips together.
HARDWARE = {
    "8 H100": 8 * 989e12,
    "TPU v5e-256": 256 * 197e12,
    # Named by its cores, of which a chip has two.
    "TPU v3-512": 256 * 123e12,
}
# The share of it that a training step reaches; `base`, 64 x 512 tokens, has
# 37 % on an H200 (docs/performance.md).
SHARE_OF_PEAK = 0.35


def pretraining_flops(config: PretrainConfig, num_steps: int = 0) -> int:
    """Returns the operations of the first steps of a run; 0: of all.

    They change with the schedules of depth and masking.
    """
    num_steps = num_steps or config.training.num_train_steps
    schedules = config.pretraining
    depths = DepthSchedule(
        schedules.depth_schedule, config.model.num_hidden_layers
    )
    shares: dict[int, float] = parse_schedule(
        "masking_schedule",
        schedules.masking_schedule or f"0:{config.masking.masked_lm_prob}",
        float,
        "2000:0.2",
    )
    changes = [s for s in {*depths.starts, *shares} if s < num_steps]
    total = 0
    for start, end in itertools.pairwise([*sorted(changes), num_steps]):
        share = shares[max(step for step in shares if step <= start)]
        total += (end - start) * _step_flops(config, depths.at(start), share)
    return total


def _step_flops(config: PretrainConfig, depth: int | None, share: float) -> int:
    length = config.model.max_position_embeddings
    return training_flops(
        config.model,
        batch_size=config.training.train_batch_size,
        seq_length=length,
        num_predictions=round(length * share),
        read_positions_only=True,
        num_applications=depth,
    )


def hours_of(flops: float) -> dict[str, float]:
    """Returns the hours that so many operations take, by machine."""
    return {
        name: flops / (peak * SHARE_OF_PEAK) / 3600
        for name, peak in HARDWARE.items()
    }
