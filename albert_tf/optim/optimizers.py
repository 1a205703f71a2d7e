"""The table of optimizers."""

import functools
from collections.abc import Callable
from typing import Any

import keras

from albert_tf.config import OptimizerConfig, lookup
from albert_tf.optim.lamb import Lamb
from albert_tf.optim.muon import Muon, NorMuon
from albert_tf.optim.variable_rules import path_patterns

# Settings of Keras optimizers that `apply` implements, not `update_step`.
_OUTSIDE_UPDATE_STEP = (
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "loss_scale_factor",
    "gradient_accumulation_steps",
)


def _lamb(config: OptimizerConfig, *, layer_adaptation: bool = True) -> Lamb:
    return Lamb(
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        bias_correction=config.bias_correction,
        layer_adaptation=layer_adaptation,
        exclude_from_layer_adaptation=path_patterns(
            "exclude_from_layer_adaptation",
            config.exclude_from_layer_adaptation,
        ),
        **_common(config),
    )


def _muon(config: OptimizerConfig, *, optimizer: type[Muon] = Muon) -> Muon:
    return optimizer(
        adam_beta_1=config.beta_1,
        adam_beta_2=config.beta_2,
        **_common(config),
    )


def _common(config: OptimizerConfig) -> dict[str, Any]:
    return {
        "learning_rate": config.learning_rate,
        "epsilon": config.epsilon,
        "weight_decay_rate": config.weight_decay_rate,
        "exclude_from_weight_decay": path_patterns(
            "exclude_from_weight_decay", config.exclude_from_weight_decay
        ),
        "name": config.optimizer,
    }


# A row adds an optimizer: any Keras optimizer, of which the trainer uses
# `build`, `variables`, `iterations`, `update_step(gradient, variable,
# learning_rate)` and, where it has it, `trust_ratios()`.
OPTIMIZERS: dict[
    str, Callable[[OptimizerConfig], keras.optimizers.Optimizer]
] = {
    "lamb": _lamb,
    "adamw": functools.partial(_lamb, layer_adaptation=False),
    "muon": _muon,
    "normuon": functools.partial(_muon, optimizer=NorMuon),
}


def build_optimizer(
    config: OptimizerConfig, compute_dtype: str = "float32"
) -> keras.optimizers.Optimizer:
    """Returns the optimizer of a configuration, for layers of compute_dtype.

    The trainer computes the learning rate (`learning_rate_at`) and clips the
    gradients, after their reduction over replicas.

    Raises:
        UserError: for an unknown optimizer or an invalid exclusion.
        ValueError: for an optimizer with settings that Keras applies outside
            `update_step`.
    """
    build = lookup(OPTIMIZERS, config.optimizer, "optimizer", extensible=True)
    optimizer = build(config)
    if isinstance(optimizer, Muon):
        optimizer.compute_dtype = compute_dtype
    for name in _OUTSIDE_UPDATE_STEP:
        if getattr(optimizer, name):
            raise ValueError(
                f"{optimizer.name} has {name}={getattr(optimizer, name)}, "
                "which Keras applies outside update_step and the trainer does "
                "not; leave it unset."
            )
    return optimizer
