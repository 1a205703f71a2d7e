"""Activations, the mask's logit and initial values.

What the layers compute is compared with NumPy in test_models.py.
"""

import math

import keras
import numpy as np
import pytest
from keras import ops

from albert_tf.config import ModelConfig, override
from albert_tf.modeling.blocks import MASKED_LOGIT
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.layers import ACTIVATIONS

X = np.linspace(-5, 5, 41)


def test_gelu_is_the_tanh_form_and_gelu_exact_is_not():
    tanh = [
        0.5
        * x
        * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        for x in X
    ]
    exact = [0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in X]
    values = {
        name: np.asarray(activation(ops.convert_to_tensor(X, "float32")))
        for name, activation in ACTIVATIONS.items()
    }
    np.testing.assert_allclose(values["gelu"], tanh, atol=1e-6)
    np.testing.assert_allclose(values["gelu_exact"], exact, atol=1e-6)
    np.testing.assert_allclose(values["relu"], np.maximum(X, 0), atol=1e-6)
    assert np.abs(values["gelu"] - values["gelu_exact"]).max() > 1e-4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_masked_logit_is_finite_and_leaves_no_weight(dtype):
    logits = ops.convert_to_tensor([40.0, -40.0, 40.0], dtype)
    mask = ops.convert_to_tensor([0.0, 0.0, MASKED_LOGIT], dtype)
    assert bool(ops.all(ops.isfinite(mask)))
    probs = ops.softmax(logits + mask)
    assert float(ops.cast(probs[2], "float32")) == 0.0


@pytest.fixture(scope="module")
def initial():
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
        },
    )
    encoder = AlbertEncoder(config)
    encoder.build()
    return {v.path: np.asarray(v) for v in encoder.weights}


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
