"""Attention in blocks of queries: the context and gradients of the whole."""

from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import DROPOUT, SMALL, random_features, randomise
from test_heads_only import KEYS, assert_equal_results
from test_heads_only import results as model_results

from albert_tf.config import REMAT, override
from albert_tf.modeling import attention
from albert_tf.modeling.attention import (
    attend,
    attend_in_chunks,
    mask_to_logits,
)
from albert_tf.modeling.dropout import apply_dropout
from albert_tf.modeling.models import AlbertForPretraining

HEADS, SIZE = 2, 4
# A row each, 1 for tokens: all, some, padding in front and within, none.
MASKS = {
    7: ("1111111", "1111000", "0001111", "1100101", "0000000"),
    12: (
        "111111111111",
        "111110000000",
        "000001111111",
        "110000100111",
        "000000000000",
    ),
}


def inputs(length, dtype="float32"):
    """Returns queries, keys and values, the mask's logits and a gradient."""
    rng = np.random.default_rng(length)
    mask = np.array([list(row) for row in MASKS[length]], "float32")
    shape = (4, len(mask), length, HEADS, SIZE)
    *states, gradient = tf.unstack(tf.cast(rng.normal(size=shape), dtype))
    return states, mask_to_logits(mask, dtype), gradient


def dropped(weights, positions):
    """Drops by position, as a block of the model does."""
    rows = tf.range(HEADS)[:, None] * 100 + positions[:, None]
    keys = tf.constant([1, 2, 3, 4, 5], tf.uint32)
    return apply_dropout(0.3, weights, keys, rows)


def results(function, length, dtype="float32"):
    """Returns the context and its gradients by queries, keys and values."""
    states, mask_logits, gradient = inputs(length, dtype)
    with tf.GradientTape() as tape:
        tape.watch(states)
        context, _ = function(
            *states, mask_logits, tf.range(length)[None], dropped
        )
    return context, *tape.gradient(context, states, gradient)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        ("float64", 1e-13),
        ("float32", 3e-6),
        ("bfloat16", 0.03),
        ("float16", 0.005),
    ],
)
@pytest.mark.parametrize("length", MASKS)
@pytest.mark.parametrize(
    "form", ["eager", "graph", pytest.param("xla", marks=pytest.mark.slow)]
)
def test_blocks_give_the_context_and_gradients_of_the_whole(
    form, length, dtype, tolerance, monkeypatch
):
    # 12 queries are three whole blocks; 7 have one that is padded.
    monkeypatch.setattr(attention, "LONGEST_CHUNK", 4)
    run = results
    if form != "eager":
        run = tf.function(results, jit_compile=form == "xla", autograph=False)
    expected = run(attend, length, dtype)
    found = run(attend_in_chunks, length, dtype)
    for whole, part in zip(expected, found, strict=True):
        assert part.dtype == whole.dtype
        np.testing.assert_allclose(
            tf.cast(part, "float64"),
            tf.cast(whole, "float64"),
            rtol=tolerance,
            atol=tolerance,
        )


@pytest.mark.slow
@pytest.mark.parametrize("remat", REMAT)
def test_a_model_in_blocks_is_the_same_model(remat, monkeypatch):
    config = override(SMALL, DROPOUT)
    model = AlbertForPretraining(config, remat=remat, dtype="float64")
    randomise(model)
    features = random_features(config)
    options = {"keys": KEYS, "heads_only": True}
    whole = model_results(model, features, **options)
    monkeypatch.setattr(attention, "LONGEST_CHUNK", 5)
    in_chunks = Mock(wraps=attention.map_chunks)
    monkeypatch.setattr(attention, "map_chunks", in_chunks)
    found = model_results(model, features, **options)
    assert in_chunks.called
    assert_equal_results(found, whole, 1e-9)


def test_weights_that_are_asked_for_are_those_of_the_whole(monkeypatch):
    model = randomise(AlbertForPretraining(SMALL))
    features = random_features(SMALL)
    whole = model(features, output_attentions=True)["attentions"]
    monkeypatch.setattr(attention, "LONGEST_CHUNK", 5)
    found = model(features, output_attentions=True)["attentions"]
    batch, length = features["input_ids"].shape
    heads = SMALL.num_attention_heads
    assert len(found) == SMALL.num_hidden_layers
    for weights, expected in zip(found, whole, strict=True):
        assert weights.shape == (batch, heads, length, length)
        np.testing.assert_allclose(weights, expected, atol=1e-6)
