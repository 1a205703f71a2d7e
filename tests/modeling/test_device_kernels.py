"""Attention by kernels of JAX: what is refused, and who chooses them.

`tests/parity` compares their results.
"""

import importlib.util

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import DROPOUT, SMALL, random_features

from albert_tf.config import (
    PretrainConfig,
    RuntimeConfig,
    UserError,
    override,
)
from albert_tf.modeling import attention
from albert_tf.modeling.attention import FORMS, training_form
from albert_tf.modeling.device_kernels import KERNELS, pad_to_blocks
from albert_tf.modeling.models import AlbertModel
from albert_tf.training.job import strategy_for


@pytest.fixture
def with_jax(monkeypatch):
    """JAX as if it were installed; nothing here calls it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)


CONFIG = override(
    SMALL, {"hidden_size": 16, "attention_probs_dropout_prob": 0.0}
)


@pytest.mark.parametrize(
    ("name", "dtype", "changes", "problem"),
    [
        ("cudnn", "float32", {}, "computes in bfloat16 or float16, and the pr"),
        ("pallas", "float16", {}, "computes in bfloat16 or float32, and the p"),
        (
            "cudnn",
            "bfloat16",
            {"hidden_size": 24},
            "takes heads of at most 128 values, a multiple of 8, and these "
            "have 12",
        ),
        ("cudnn", "bfloat16", {"hidden_size": 512}, "takes heads of at most"),
        (
            "pallas",
            "bfloat16",
            {"attention_probs_dropout_prob": 0.1},
            "drops no weights: attention_probs_dropout_prob=0.1 must be 0",
        ),
    ],
)
def test_what_a_kernel_cannot_do_is_refused(
    with_jax, name, dtype, changes, problem
):
    with pytest.raises(UserError, match=f"^attention='{name}' {problem}"):
        training_form(name, override(CONFIG, changes), dtype)


def test_a_missing_jax_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="not installed here: pip install jax"):
        training_form("cudnn", CONFIG, "bfloat16")


def test_tensorflow_chooses_no_kernel_by_itself():
    assert training_form("auto", CONFIG, "bfloat16") == "plain"


def test_the_kernel_of_the_device_is_left_where_it_cannot_serve(
    with_jax, monkeypatch
):
    monkeypatch.setattr(attention, "kernel_of_device", lambda: "cudnn")
    assert training_form("auto", CONFIG, "bfloat16") == "cudnn"
    assert training_form("auto", CONFIG, "float32") == "plain"
    drops = override(CONFIG, DROPOUT)
    assert training_form("auto", drops, "bfloat16") == "plain"


def test_batches_of_any_size_are_refused(with_jax):
    states = [keras.KerasTensor((None, 4, 2, 8), "bfloat16")] * 3
    with pytest.raises(UserError, match="needs batches of one known size"):
        FORMS["cudnn"](*states, None, positions=None, dropout=None)


def test_a_program_needs_the_device():
    config = override(PretrainConfig(), {"attention": "cudnn"})
    with pytest.raises(
        UserError, match="is a kernel for a GPU, and TensorFlow"
    ):
        strategy_for(config, RuntimeConfig())


def test_an_unknown_form_is_refused():
    with pytest.raises(UserError, match="attention='flash' is not one of aut"):
        AlbertModel(SMALL, attention="flash")


def test_only_training_asks_for_a_kernel():
    model = AlbertModel(override(SMALL, DROPOUT), attention="cudnn")
    features = random_features(SMALL)
    model(features)
    with pytest.raises(UserError, match="attention='cudnn'"):
        model(features, training=True)


def test_what_fills_a_block_has_less_weight_than_padding():
    states = [tf.ones((1, n, 2, 8), "bfloat16") for n in (3, 5, 5)]
    mask = tf.constant([[[[0.0, 0, 0, -10000, -10000]]]], "bfloat16")
    kernel = KERNELS["pallas"]
    filled = pad_to_blocks(kernel, *states, mask)
    assert [x.shape[1] for x in filled[:3]] == [8, 128, 128]
    found = np.asarray(tf.cast(filled[3], "float32"))[0, 0, 0]
    assert found.shape == (128,)
    assert found[5:].max() < found[:5].min()


def test_a_model_keeps_its_form_of_attention():
    model = AlbertModel(SMALL, attention="plain")
    assert AlbertModel.from_config(model.get_config()).attention == "plain"
