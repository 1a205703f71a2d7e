"""The row that docs/extending.md adds: a step is trained with it."""

import numpy as np
import pytest
import tensorflow as tf
from pretraining_runs import run

from albert_tf.cluster.distribution import STRATEGIES, make_strategy
from albert_tf.config import RuntimeConfig, UserError, override


@pytest.mark.slow
def test_a_row_is_all_that_a_strategy_needs(
    import_section, small_config, shards_dir, tmp_path
):
    import_section("A strategy", STRATEGIES, "one_device")
    runtime = RuntimeConfig(strategy="one_device")
    assert isinstance(make_strategy(runtime), tf.distribute.OneDeviceStrategy)
    changes = {"num_train_steps": 1, "num_hidden_layers": 1}
    config = override(small_config, changes)
    evaluation = run(config, shards_dir, tmp_path / "run", runtime=runtime)
    assert np.isfinite(evaluation["loss"])


def test_an_unknown_strategy_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="did you mean mirrored"):
        make_strategy(RuntimeConfig(strategy="mirored"))
