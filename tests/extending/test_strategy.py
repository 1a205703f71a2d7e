"""The row that docs/extending.md adds."""

import pytest
import tensorflow as tf

from albert_tf.cluster.distribution import STRATEGIES, make_strategy
from albert_tf.config import RuntimeConfig, UserError


def test_a_row_is_all_that_a_strategy_needs(import_section):
    import_section("A strategy", STRATEGIES, "one_device")
    runtime = RuntimeConfig(strategy="one_device")
    assert isinstance(make_strategy(runtime), tf.distribute.OneDeviceStrategy)


def test_an_unknown_strategy_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="did you mean mirrored"):
        make_strategy(RuntimeConfig(strategy="mirored"))
