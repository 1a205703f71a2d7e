"""Initial values.

What the layers compute is compared with NumPy in test_models.py.
"""

import math

import keras
import numpy as np
import pytest

from albert_tf.config import ModelConfig, override
from albert_tf.modeling.encoder import AlbertEncoder


def initial_weights(**changes):
    keras.utils.set_random_seed(0)
    config = override(
        ModelConfig(),
        {
            "vocab_size": 500,
            "embedding_size": 64,
            "hidden_size": 96,
            "num_hidden_layers": 1,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "max_position_embeddings": 64,
            "initializer_range": 0.05,
            **changes,
        },
    )
    encoder = AlbertEncoder(config)
    encoder.build()
    return {v.path: np.asarray(v) for v in encoder.weights}


@pytest.fixture(scope="module")
def initial():
    return initial_weights()


def test_kernels_start_from_the_truncated_normal(initial):
    # A normal cut at two deviations has 0.8796 of its deviation. The bounds
    # are four standard errors of the smallest kernel.
    kernels = {
        path: value
        for path, value in initial.items()
        if value.ndim == 2 and "token_type" not in path
    }
    assert len(kernels) == 10
    for path, value in kernels.items():
        assert np.abs(value).max() <= 0.1, path
        assert abs(value.std() / (0.05 * 0.8796) - 1) < 0.05, path
        assert abs(value.mean()) < 4 * 0.05 / math.sqrt(value.size), path
    assert len({value.tobytes() for value in kernels.values()}) == 10


def test_biases_start_at_zero_and_scales_at_one(initial):
    for path, value in initial.items():
        if path.endswith(("bias", "beta")):
            assert not value.any(), path
        elif path.endswith("gamma"):
            assert (value == 1).all(), path


def test_output_kernels_start_scaled(initial):
    scaled = initial_weights(output_init_scale=0.25)
    # Each is drawn with the same seed.
    expected = {
        path: value * (0.25 if path.endswith("output/kernel") else 1.0)
        for path, value in initial.items()
    }
    assert sum(path.endswith("output/kernel") for path in initial) == 2
    for path, value in scaled.items():
        np.testing.assert_allclose(value, expected[path], rtol=1e-6)


def test_positions_start_as_sinusoids():
    weights = initial_weights(position_init="sinusoidal")
    (table,) = (v for p, v in weights.items() if "position_emb" in p)
    for position in (0, 1, 63):
        for wave in (0, 5, 31):
            angle = position / 10_000 ** (2 * wave / 64)
            size = 0.05 * math.sqrt(2)
            np.testing.assert_allclose(
                table[position, [wave, 32 + wave]],
                [size * math.sin(angle), size * math.cos(angle)],
                atol=1e-6,
            )
    np.testing.assert_allclose(np.sqrt((table**2).mean()), 0.05, rtol=1e-6)
