"""The row that docs/extending.md adds: named by --preset."""

from albert_tf.config import PRESETS, PretrainConfig, override, preset


def test_a_row_is_all_that_a_preset_needs(import_section):
    row = import_section("A preset", PRESETS, "narrow")
    config = override(PretrainConfig(), preset("narrow"))
    assert config.model.hidden_size == row["hidden_size"] == 192
    assert config.training.train_batch_size == 64
