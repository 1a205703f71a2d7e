"""Optimizers of users' own."""

import keras
import pytest

from albert_tf.config import OptimizerConfig, override
from albert_tf.optim.optimizers import OPTIMIZERS, build_optimizer


def test_settings_outside_update_step_are_refused(monkeypatch):
    monkeypatch.setitem(
        OPTIMIZERS,
        "decaying",
        lambda _: keras.optimizers.AdamW(name="decaying"),
    )
    config = override(OptimizerConfig(), {"optimizer": "decaying"})
    with pytest.raises(ValueError, match="decaying has weight_decay=0.004"):
        build_optimizer(config)
