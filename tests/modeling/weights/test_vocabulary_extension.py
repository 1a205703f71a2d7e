"""extend_vocabulary: old pieces as they were, new ones the mean of theirs."""

import numpy as np
import pytest
from numpy_albert import SMALL, randomise

from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
)
from albert_tf.modeling.weights.vocabulary_extension import extend_vocabulary

FEATURES = {
    "input_ids": np.array([[3, 7, 9, 22]]),
    "masked_lm_positions": np.array([[1, 2]]),
}


def test_logits_are_means():
    model = randomise(AlbertForPretraining(SMALL), seed=1)
    larger = extend_vocabulary(model, [[5, 9, 9], [22]])
    assert larger.config.vocab_size == SMALL.vocab_size + 2
    old, new = (
        np.array(m(FEATURES)["masked_lm_logits"]) for m in (model, larger)
    )
    np.testing.assert_array_equal(new[..., :23], old)
    mean = (old[..., 5] + 2 * old[..., 9]) / 3
    np.testing.assert_allclose(new[..., 23], mean, rtol=1e-5)
    np.testing.assert_allclose(new[..., 24], old[..., 22], rtol=1e-6)
    # An input that is a piece of one origin is that piece.
    same = {**FEATURES, "input_ids": np.array([[3, 7, 9, 24]])}
    np.testing.assert_array_equal(larger(same)["masked_lm_logits"], new)


def test_a_task_head_is_copied():
    model = randomise(AlbertForClassification(SMALL, labels=["a", "b"]), seed=1)
    larger = extend_vocabulary(model, [[5]])
    assert larger.labels == ["a", "b"]
    ids = {"input_ids": FEATURES["input_ids"]}
    assert np.array(larger(ids)["logits"]) == pytest.approx(
        np.array(model(ids)["logits"])
    )
