"""The row that docs/extending.md adds: planned, counted, trained, stored."""

import pytest
from pretraining_runs import run, weights_of

from albert_tf.config import SHARING, ModelConfig, override, sharing_plan
from albert_tf.modeling.accounting import parameter_count

CHANGES = {"sharing": "pairs", "num_hidden_layers": 4}


def test_a_row_is_all_that_a_sharing_mode_needs(import_section):
    import_section("A sharing mode", SHARING, "pairs")
    config = override(ModelConfig(), CHANGES)
    assert sharing_plan(config) == [(0, 0), (0, 0), (1, 0), (1, 0)]
    shared = override(config, {"sharing": "all"})
    count, of_shared = map(parameter_count, (config, shared))
    assert count.attention == 2 * of_shared.attention
    assert count.feed_forward == of_shared.feed_forward


@pytest.mark.slow
def test_a_model_of_the_mode_is_trained_and_stored(
    import_section, small_config, shards_dir, tmp_path
):
    import_section("A sharing mode", SHARING, "pairs")
    config = override(small_config, CHANGES | {"num_train_steps": 1})
    run(config, shards_dir, tmp_path / "run")
    names = " ".join(weights_of(tmp_path / "run"))
    assert "attention_1/" in names and "attention_2/" not in names
    assert "feed_forward_1/" not in names
