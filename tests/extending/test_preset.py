"""The row that docs/extending.md adds: named by --preset, trained on."""

import pytest
from pretraining_runs import run

from albert_tf.config import PRESETS, PretrainConfig, override, preset


def test_a_row_is_all_that_a_preset_needs(import_section):
    row = import_section("A preset", PRESETS, "narrow")
    config = override(PretrainConfig(), preset("narrow"))
    assert config.model.hidden_size == row["hidden_size"] == 192
    assert config.training.train_batch_size == 64


@pytest.mark.slow
def test_a_model_of_the_preset_is_trained(
    import_section, small_config, shards_dir, tmp_path
):
    import_section("A preset", PRESETS, "narrow")
    short = {"num_train_steps": 1, "train_batch_size": 2, "num_warmup_steps": 0}
    sizes = {"vocab_size": small_config.model.vocab_size}
    config = override(small_config, preset("narrow") | short | sizes)
    assert "masked_lm_loss" in run(config, shards_dir, tmp_path / "run")
