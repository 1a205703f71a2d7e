"""The row that docs/extending.md adds: planned, counted, stored."""

import numpy as np

from albert_tf.config import SHARING, ModelConfig, override, sharing_plan
from albert_tf.modeling.accounting import parameter_count
from albert_tf.modeling.models import AlbertForPretraining

CHANGES = {"sharing": "pairs", "num_hidden_layers": 4}


def test_a_row_is_all_that_a_sharing_mode_needs(import_section):
    import_section("A sharing mode", SHARING, "pairs")
    config = override(ModelConfig(), CHANGES)
    assert sharing_plan(config) == [(0, 0), (0, 0), (1, 0), (1, 0)]
    shared = override(config, {"sharing": "all"})
    count, of_shared = map(parameter_count, (config, shared))
    assert count.attention == 2 * of_shared.attention
    assert count.feed_forward == of_shared.feed_forward


def test_a_model_of_the_mode_is_stored(import_section, small_config, tmp_path):
    import_section("A sharing mode", SHARING, "pairs")
    config = override(small_config.model, CHANGES)
    model = AlbertForPretraining(config)
    model.save_pretrained(str(tmp_path))
    loaded = AlbertForPretraining.from_pretrained(str(tmp_path))
    paths = [variable.path for variable in loaded.trainable_variables]
    names = " ".join(paths)
    assert "attention_1/" in names and "attention_2/" not in names
    assert "feed_forward_1/" not in names
    for ours, theirs in zip(
        model.trainable_variables, loaded.trainable_variables, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
