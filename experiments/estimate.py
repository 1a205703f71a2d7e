"""Arithmetic of pretraining a row, and its hours on machines that are known."""

from experiments.units import Unit, pretraining_config, step_flops

# FLOP/s of bfloat16 products by the makers' figures, all chips together.
HARDWARE = {
    "8 H100": 8 * 989e12,
    "TPU v5e-256": 256 * 197e12,
    "TPU v3-512": 512 * 61.5e12,
}
# The share of it that a training step reaches; `base`, 64 x 512 tokens, has
# 37 % on an H200 (docs/performance.md).
SHARE_OF_PEAK = 0.35


def pretraining_flops(unit: Unit) -> int:
    """Returns the operations of a unit of pretraining."""
    config = pretraining_config(unit)
    return step_flops(config) * config.training.num_train_steps


def hours_of(flops: float) -> dict[str, float]:
    """Returns the hours that so many operations take, by machine."""
    return {
        name: flops / (peak * SHARE_OF_PEAK) / 3600
        for name, peak in HARDWARE.items()
    }
