"""The learning rate of every step, against NumPy and by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import OptimizerConfig, override, setting_fields
from albert_tf.optim.schedules import (
    DECAYS,
    learning_rate_at,
    warm_up_warnings,
)


def rates(steps, total, **changes):
    config = override(OptimizerConfig(), {"learning_rate": 1.0} | changes)
    return [
        float(learning_rate_at(np.int64(step), config, total)) for step in steps
    ]


@pytest.mark.parametrize(
    ("total", "changes", "expected"),
    [
        # Four steps up, eight steps down; 0 after the last.
        (
            12,
            {"num_warmup_steps": 4},
            [n / 4 for n in (1, 2, 3, 4)]
            + [n / 8 for n in (8, 7, 6, 5, 4, 3, 2, 1)]
            + [0, 0],
        ),
        (3, {"num_warmup_steps": 1}, [1, 1, 0.5, 0]),
        # A warm-up that is never left.
        (2, {"num_warmup_steps": 4}, [0.25, 0.5]),
    ],
)
def test_schedules_by_hand(total, changes, expected):
    steps = range(len(expected))
    assert rates(steps, total, **changes) == pytest.approx(expected, rel=1e-6)


def test_a_warm_up_beyond_the_run_is_warned_of():
    config = OptimizerConfig(learning_rate=0.01, num_warmup_steps=101)
    assert warm_up_warnings(config, 101) == ()
    (warning,) = warm_up_warnings(config, 100)
    original = override(config, {"original_schedule": True})
    assert warm_up_warnings(original, 102) == ()
    assert len(warm_up_warnings(original, 101)) == 1
    assert "num_warmup_steps=101 is too many for num_train_steps=100" in warning


def of_google(step, base, warmup, total, power):
    """optimization.py of google-research/albert, in double precision."""
    if warmup and step < warmup:
        return base * step / warmup
    return base * (1 - min(step, total) / total) ** power


@pytest.mark.parametrize(
    ("total", "warmup", "power"),
    [
        (12, 4, 1.0),
        (12, 0, 1.0),
        (20, 7, 2.0),
        (5, 9, 1.0),
        (1, 0, 0.5),
        # The released one's.
        (125_000, 3125, 1.0),
    ],
)
def test_the_original_schedule(total, warmup, power):
    # A jump after the warm-up.
    steps = [*range(min(total, 20) + 3), max(warmup - 1, 0), warmup]
    found = rates(
        steps,
        total,
        learning_rate=0.00176,
        num_warmup_steps=warmup,
        decay_power=power,
        original_schedule=True,
    )
    expected = [of_google(n, 0.00176, warmup, total, power) for n in steps]
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-10)


SHAPES = {
    "polynomial": lambda left: left**2.0,
    "cosine": lambda left: (1 + np.cos(np.pi * (1 - left))) / 2,
    "constant": lambda left: 1.0,
}


@pytest.mark.parametrize("warmup", [0, 5])
@pytest.mark.parametrize("decay", DECAYS)
def test_every_decay(decay, warmup):
    total, base, end = 25, 3.0, 0.5
    steps = range(total + 3)
    found = rates(
        steps,
        total,
        learning_rate=base,
        learning_rate_decay=decay,
        end_learning_rate=end,
        decay_power=2.0,
        num_warmup_steps=warmup,
    )
    expected = []
    for n in range(1, len(steps) + 1):
        left = min(1, max(0, 1 - (n - 1 - warmup) / (total - warmup)))
        after = end + (base - end) * SHAPES[decay](left)
        expected.append(base * n / warmup if n < warmup else after)
    assert found == pytest.approx(expected, rel=1e-5)


def test_every_decay_of_the_configuration_has_a_row():
    field = setting_fields(OptimizerConfig)["learning_rate_decay"]
    assert set(DECAYS) == set(field.metadata["choices"]) == set(SHAPES)


@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("decay", SHAPES)
def test_eager_and_compiled_schedules_agree(decay, original):
    config = OptimizerConfig(
        learning_rate_decay=decay,
        num_warmup_steps=3,
        original_schedule=original,
    )
    compiled = tf.function(
        lambda step: learning_rate_at(step, config, 9), jit_compile=True
    )
    for step in (0, 2, 3, 9, 10):
        rate = learning_rate_at(step, config, 9)
        assert keras.backend.standardize_dtype(rate.dtype) == "float32"
        assert rate.shape == ()
        in_graph = float(compiled(tf.constant(step, tf.int64)))
        assert in_graph == pytest.approx(float(rate), rel=1e-6, abs=1e-10)


def test_ten_million_steps_keep_decaying():
    steps = range(9_999_990, 10_000_000)
    for decay in ("polynomial", "cosine"):
        found = rates(steps, 10_000_000, learning_rate_decay=decay)
        assert found[-1] > 0
        assert found == sorted(found, reverse=True)
