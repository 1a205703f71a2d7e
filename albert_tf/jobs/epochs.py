"""Epochs of training, as the steps that schedules and the loop count."""

import math
from fractions import Fraction
from typing import TypeVar

from albert_tf.config import (
    EmbeddingConfig,
    FinetuneConfig,
    override,
    require,
)
from albert_tf.config.training import EmbeddingSettings, FinetuneSettings

Config = TypeVar("Config", FinetuneConfig, EmbeddingConfig)


def with_steps(
    config: Config,
    settings: FinetuneSettings | EmbeddingSettings,
    num_rows: int,
    best_metric: str,
) -> Config:
    """Returns the configuration with steps in place of epochs.

    Args:
        config: of the job.
        settings: its section with the epochs and the share of warm-up.
        num_rows: those of an epoch.
        best_metric: that of a configuration which names none.

    Raises:
        UserError: when there would be no step.
    """
    training = config.training
    # 1.1 epochs of 10 rows are 11 rows, and in floating point a little more.
    epochs = Fraction(str(settings.num_train_epochs))
    steps = training.num_train_steps or math.ceil(
        epochs * num_rows / training.train_batch_size
    )
    require(
        steps > 0,
        "num_train_steps and num_train_epochs are both 0; training needs at "
        "least 1 step.",
    )
    warmup = config.optimizer.num_warmup_steps or round(
        settings.warmup_proportion * steps
    )
    return override(
        config,
        {
            "num_train_steps": steps,
            "num_warmup_steps": warmup,
            "best_metric": training.best_metric or best_metric,
        },
    )
