"""Checks of features and labels: eager, in graphs, under XLA, before fit."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import assert_equal
from test_heads import CONFIG, ENCODER_INPUTS, batch_of, model_of

from albert_tf.config import UserError

INVALID = tf.errors.InvalidArgumentError
NAME = "AlbertForClassification"


def inputs_of(name=NAME):
    batch = batch_of(name)
    return {key: batch[key] for key in ENCODER_INPUTS}


@pytest.fixture(scope="module")
def graph():
    """A function of any batch and length, as exported models are."""
    model = model_of(NAME)

    @tf.function(
        input_signature=[
            {k: tf.TensorSpec([None, None], tf.int32) for k in ENCODER_INPUTS}
        ]
    )
    def function(features):
        return model(features)["logits"]

    return lambda features: function(
        {k: tf.constant(v, tf.int32) for k, v in features.items()}
    )


@pytest.mark.parametrize(
    ("feature", "limit", "value"),
    [("input_ids", 23, -1), ("input_ids", 23, 23), ("segment_ids", 2, 2)],
)
def test_ids_out_of_range(feature, limit, value, graph):
    features = inputs_of()
    features[feature][1, 2] = value
    text = rf"{feature} must .* 0 to {limit - 1} .*; at \[1, 2\] is {value}\."
    model = model_of(NAME)
    for call in (
        model,
        lambda features: model(features, training=True),
        model.encode,
        lambda features: model.predict(features, verbose=0),
    ):
        with pytest.raises(UserError, match=text):
            call(features)
    with pytest.raises(INVALID, match=rf"{feature} must.*\[{value}\]"):
        graph(features)


def test_messages_of_a_call_are_one_line():
    """Without what Keras puts around errors of a layer's call."""
    model = model_of(NAME)
    features = inputs_of()
    axes = {"input_ids": np.ones((2, 3, 4), "int32")}
    for wrong in ({"segment_ids": features["segment_ids"]}, axes):
        with pytest.raises(UserError) as caught:
            model(wrong)
        assert len(str(caught.value).splitlines()) == 1


def test_a_long_sequence_of_unknown_length(graph):
    limit = CONFIG.max_position_embeddings
    features = {k: np.repeat(v, limit, axis=1) for k, v in inputs_of().items()}
    message = rf"max_position_embeddings={limit} tokens:\] \[{7 * limit}\]"
    with pytest.raises(INVALID, match=message):
        graph(features)


def test_names_of_transformers_are_read():
    model, features = model_of(NAME), inputs_of()
    expected = np.asarray(model(features)["logits"])
    names = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    theirs = {names.get(n, n): v.astype(int) for n, v in features.items()}
    # Their tokenizers return a mapping that is no dictionary.
    for given in (theirs, collections.UserDict(theirs)):
        np.testing.assert_array_equal(model(given)["logits"], expected)
    both = model({**theirs, **features})["logits"]
    np.testing.assert_array_equal(both, expected)


def test_two_names_of_one_input_must_agree():
    model, features = model_of(NAME), inputs_of()
    features["attention_mask"] = 1 - features["input_mask"]
    with pytest.raises(UserError, match="attention_mask and input_mask are"):
        model(features)


def test_unsigned_and_short_integers_are_read():
    model, features = model_of(NAME), inputs_of()
    expected = np.asarray(model(features)["logits"])
    for kind in ("uint8", "uint64", "int8"):
        given = {key: value.astype(kind) for key, value in features.items()}
        np.testing.assert_array_equal(model(given)["logits"], expected)


def test_no_mask_is_ones_and_no_segments_are_the_first():
    for name in (NAME, "AlbertForMultipleChoice", "AlbertForSentenceEmbedding"):
        model, features = model_of(name), inputs_of(name)
        ids = features["input_ids"]
        features["input_mask"] = np.ones_like(ids)
        features["segment_ids"] = np.zeros_like(ids)
        expected = {n: np.asarray(v) for n, v in model(features).items()}
        assert_equal(model({"input_ids": ids}), expected)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda f: {"input_ids": f["input_ids"].astype("float32")},
            "input_ids must be integers; they are float32",
        ),
        (
            lambda f: {"segment_ids": f["segment_ids"][:, 1:]},
            r"segment_ids must have the shape of input_ids, \[3, 7\]",
        ),
        (
            lambda f: {"input_mask": 255 * f["input_mask"].astype("int32")},
            "input_mask must be whole numbers from 0 to 1 .*; at .* is 255",
        ),
        (
            lambda f: {"input_mask": 1e4 * (f["input_mask"] - 1.0)},
            "input_mask must be whole numbers from 0 to 1 .*; at .* is -10000",
        ),
        (
            lambda f: {n: v[0] for n, v in f.items()},
            r"\[batch, seq\] .* they have \[7\]",
        ),
        (
            lambda f: {n: np.repeat(v, 3, axis=1) for n, v in f.items()},
            "A sequence of 21 tokens exceeds max_position_embeddings=16",
        ),
    ],
)
def test_features_that_cannot_be_read(change, text):
    features = inputs_of() | change(inputs_of())
    with pytest.raises(UserError, match=text):
        model_of(NAME)(features)
    with pytest.raises(UserError, match="^" + text.split(r"\[")[0]):
        model_of(NAME).predict(features, verbose=0)


def test_rows_of_different_lengths_are_refused():
    ids = tf.ragged.constant([[2, 5, 3], [2, 3]])
    with pytest.raises(UserError, match="^input_ids has rows of different le"):
        model_of(NAME)({"input_ids": ids})
    with pytest.raises(UserError, match="^input_ids has rows of different le"):
        model_of(NAME).predict({"input_ids": ids}, verbose=0)


def test_a_mask_by_another_name_is_not_left_out():
    features = inputs_of()
    features["mask"] = features.pop("input_mask")
    with pytest.raises(UserError, match="no input_mask, but mask, which"):
        model_of(NAME)(features)
    with pytest.raises(UserError, match="reads a dictionary with input_ids"):
        model_of(NAME)(features["mask"])


@pytest.mark.parametrize("label", [-1, 1.5])
def test_labels_out_of_range(label):
    """Refused before training, in a graph, and by a call of a user's own."""
    model, inputs = model_of(NAME), inputs_of()
    labels = np.array([0, label, 2])
    model.compile("sgd", run_eagerly=True)
    text = rf"label_ids must be .* from 0 to 2 .* at \[1\] is {label}\."
    for y in (labels, {"logits": labels}):
        with pytest.raises(UserError, match=text):
            model.fit(inputs, y, verbose=0)
        with pytest.raises(UserError, match=text):
            model.evaluate(inputs, y, verbose=0)
        with pytest.raises(UserError, match=text):
            model.compute_loss(inputs, y, model(inputs))
    # What weighs nothing may be anything.
    found = model.evaluate(
        inputs, labels, sample_weight=np.float32([1, 0, 1]), verbose=0
    )
    assert np.isfinite(found)


@pytest.mark.slow
def test_a_dataset_with_a_label_out_of_range():
    model = model_of(NAME)
    model.compile("sgd")
    pair = inputs_of(), np.array([0, 3, 2])
    data = tf.data.Dataset.from_tensor_slices(pair).batch(3)
    before = [np.asarray(w) for w in model.weights]
    with pytest.raises(INVALID, match=r"label_ids must.*\[3\] \[0\] \[3"):
        model.fit(data, verbose=0)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_positions_out_of_range():
    name = "AlbertForQuestionAnswering"
    model, batch = model_of(name), batch_of(name)
    batch["end_positions"][2] = 7
    model.compile("sgd")
    with pytest.raises(UserError, match=r"end_positions .* at \[2\] is 7"):
        model.fit(batch, verbose=0)
    batch = batch_of("AlbertForMaskedLM")
    batch["masked_lm_positions"][0, 1] = 9
    with pytest.raises(UserError, match=r"masked_lm_positions .* \[0, 1\]"):
        model_of("AlbertForMaskedLM")(batch)


def test_a_graph_of_the_trainer_has_no_assertions():
    """The trainer's batches are known to be right; its step pays nothing."""
    model, features = model_of(NAME), inputs_of()
    features = {k: tf.constant(v, tf.int32) for k, v in features.items()}
    keys = tf.cast(tf.range(len(features["input_ids"])), tf.uint32)

    def assertions(**options):
        function = tf.function(lambda f: model(f, **options))
        graph = function.get_concrete_function(features).graph
        return sum(op.type == "Assert" for op in graph.get_operations())

    assert assertions(training=True, dropout_keys=keys) == 0
    # One each for ids, segments and mask.
    assert assertions(training=False) == assertions(training=True) == 3
