"""The class that docs/extending.md adds: trained, saved and loaded."""

import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import SMALL, random_features

from albert_tf.config import UserError, override
from albert_tf.interchange.convert import models_by_head
from albert_tf.interchange.export.serving_module import ServingModule
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.modeling.heads import HEADS, DenseHead
from albert_tf.modeling.models import AlbertForClassification, model_class


@pytest.mark.slow
def test_a_class_is_all_that_a_head_needs(
    import_section, tmp_path, tiny_tokenizer
):
    import_section("A head", HEADS, "topics")
    kind = model_class("topics")
    assert kind.__name__ == "AlbertForTopics"
    batch = random_features(SMALL)
    del batch["masked_lm_positions"]
    topics = np.array([[1, 0], [1, 1], [0, 0]])
    model = kind(SMALL, 2)
    before = np.asarray(model.topics.classifier.kernel)
    model.compile("sgd")
    model.fit(batch, topics, verbose=0)
    assert np.abs(before - model.topics.classifier.kernel).max() > 0
    model.save_pretrained(tmp_path / "saved")
    again = kind.from_pretrained(tmp_path / "saved")
    expected = np.asarray(model(batch)["topic_logits"])
    assert expected.shape == (3, 2)
    np.testing.assert_array_equal(again(batch)["topic_logits"], expected)
    encoder = AlbertForClassification.from_pretrained(
        tmp_path / "saved", num_labels=3, allow_missing=True
    )
    np.testing.assert_array_equal(
        encoder(batch)["pooled_output"], model(batch)["pooled_output"]
    )
    assert models_by_head()["topics"] is kind
    config = override(SMALL, {"vocab_size": tiny_tokenizer.vocab_size})
    loaded = LoadedModel(kind(config, 2), tiny_tokenizer, 12)
    served = ServingModule(loaded).functions["serving_default"]
    texts = tf.constant(["the", "", "of and"])
    assert served(texts)["topic_logits"].shape == (3, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reads": "sequence"}, "^Own.reads='sequence' is none of pooled_out"),
        ({"model_name": ""}, "^Own.model_name='': expected the name of a mod"),
        (
            {"model_name": "AlbertForRegression"},
            "^Own.model_name='AlbertForRegression': .* no other head has",
        ),
    ],
)
def test_a_row_that_cannot_be_a_model(monkeypatch, changes, message):
    attributes = {"head_name": "own", "model_name": "AlbertForOwn", **changes}
    monkeypatch.setitem(HEADS, "own", type("Own", (DenseHead,), attributes))
    with pytest.raises(UserError, match=message):
        model_class("own")


def test_weights_have_no_name_of_a_head_elsewhere():
    """By theirs, transformers would apply them to its pooled output."""
    own = type("Own", (DenseHead,), {"head_name": "own"})
    (row,) = own.weight_names
    assert row == ("classifier", None, "own_classifier")


def test_a_head_that_is_no_row():
    with pytest.raises(UserError, match="^head='spam' is not one of .*; did"):
        model_class("spam")
