"""Local attention: a mask of the nearest positions and the first."""

import importlib
import sys

import numpy as np
import pytest
from numpy_albert import SMALL, random_features, randomise

from albert_tf.modeling import attention, encoder
from albert_tf.modeling.models import AlbertModel

BATCH, LENGTH, HEADS, SIZE = 2, 150, 2, 4


@pytest.fixture
def local_attention(monkeypatch):
    """The module, whose rows are gone after the test."""
    forms = dict(attention.FORMS)
    for module in (attention, encoder):
        monkeypatch.setattr(module, "FORMS", forms)
    name = "experiments.local_attention"
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module(name)
    del sys.modules[name]


def test_a_position_attends_to_its_window_and_to_the_first(local_attention):
    rng = np.random.default_rng(1)
    query, key, value = rng.normal(size=(3, BATCH, LENGTH, HEADS, SIZE)).astype(
        "float32"
    )
    # Some queries alone, as the last block computes them.
    positions = np.array([[0, 5, 149], [0, 80, 100]], "int32")
    queries = np.take_along_axis(query, positions[..., None, None], axis=1)
    mask = np.arange(LENGTH) < np.array([LENGTH, 90])[:, None]
    context, weights = attention.FORMS["plain"](
        queries,
        key,
        value,
        attention.mask_to_logits(mask, "float32"),
        positions,
        lambda weights, positions: weights,
    )
    expected = np.zeros_like(queries)
    for b, row in enumerate(positions):
        for n, i in enumerate(row):
            seen = [
                j
                for j in range(LENGTH)
                if mask[b, j] and (0 in (i, j) or abs(i - j) <= 64)
            ]
            for h in range(HEADS):
                logits = key[b, seen, h] @ query[b, i, h] / np.sqrt(SIZE)
                shares = np.exp(logits) / np.exp(logits).sum()
                expected[b, n, h] = shares @ value[b, seen, h]
    np.testing.assert_allclose(context, expected, atol=1e-5)
    assert weights.shape == (BATCH, HEADS, 3, LENGTH)


def test_the_usual_forms_are_replaced(local_attention):
    assert attention.FORMS["plain"] is local_attention.attend_locally
    assert attention.FORMS["with_weights"] is local_attention.attend_locally


def test_a_model_attends_by_it(local_attention, monkeypatch):
    """Where all positions are in the window the states are the usual ones."""
    features = random_features(SMALL)
    model = AlbertModel(SMALL)
    randomise(model)
    local = model(features)["sequence_output"]
    monkeypatch.setitem(attention.FORMS, "plain", attention.attend)
    usual = model(features)["sequence_output"]
    np.testing.assert_allclose(local, usual, atol=1e-5)
