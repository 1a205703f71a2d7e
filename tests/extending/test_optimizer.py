"""The row that docs/extending.md adds: trained, interrupted and resumed."""

import keras
import pytest
from pretraining_runs import PowerCut, assert_same_run, cut_power, run

from albert_tf.config import OptimizerConfig, override
from albert_tf.optim.optimizers import OPTIMIZERS, build_optimizer


@pytest.mark.slow
def test_a_row_is_all_that_an_optimizer_needs(
    import_section, small_config, shards_dir, tmp_path, monkeypatch
):
    name = "momentum_sgd"
    import_section("An optimizer", OPTIMIZERS, name)
    config = override(
        small_config,
        {
            "optimizer": name,
            "num_hidden_layers": 1,
            "num_train_steps": 6,
            "ema_decay": 0.9,
            "save_checkpoints_steps": 2,
        },
    )
    run(config, shards_dir, tmp_path / "whole")
    with monkeypatch.context() as patch:
        cut_power(patch, after=5)
        with pytest.raises(PowerCut):
            run(config, shards_dir, tmp_path / "cut")
    run(config, shards_dir, tmp_path / "cut")
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_settings_outside_update_step_are_refused(monkeypatch):
    monkeypatch.setitem(
        OPTIMIZERS,
        "decaying",
        lambda _: keras.optimizers.AdamW(name="decaying"),
    )
    config = override(OptimizerConfig(), {"optimizer": "decaying"})
    with pytest.raises(ValueError, match="decaying has weight_decay=0.004"):
        build_optimizer(config)
