"""The layer from strings to a model's inputs, against the tokenizer's call."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from awkward_texts import AWKWARD_TEXTS
from training_fixtures import SMALL_MODEL

from albert_tf import AlbertForClassification, ModelConfig, TextPreprocessor
from albert_tf.config import UserError, override

LONG = ["the " * 6000, *AWKWARD_TEXTS]


def data_set(*columns):
    """A data set of string tensors; NumPy's strings lose a last NUL."""
    encoded = tuple(
        np.array([text.encode() for text in column], object)
        for column in columns
    )
    return tf.data.Dataset.from_tensor_slices((encoded,)).batch(len(LONG))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("tiny_tokenizer", {"max_seq_length": 24, "padding": "max"}),
        ("wordpiece_tokenizer", {"max_seq_length": 33}),
        ("tiny_tokenizer", {"max_seq_length": None, "padding": "none"}),
    ],
)
def test_ids_are_those_of_the_call(request, kind, options):
    tokenizer = request.getfixturevalue(kind)
    columns = LONG, LONG[::-1]
    # The second time from its configuration, as Keras loads it.
    preprocessor = TextPreprocessor(tokenizer, **options)
    preprocessor = TextPreprocessor.from_config(preprocessor.get_config())
    (found,) = data_set(*columns).map(preprocessor)
    expected = tokenizer(*columns, **options)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == tf.int32
        if options.get("padding") == "none":
            rows = [row.tolist() for row in values]
            assert found[name].to_list() == rows
        else:
            np.testing.assert_array_equal(found[name], values)


def test_labels_are_passed_on(tiny_tokenizer):
    preprocessor = TextPreprocessor(tiny_tokenizer, max_seq_length=8)
    columns = ["the", "of and"], [1, 0]
    (batch,) = (
        tf.data.Dataset.from_tensor_slices(columns).batch(2).map(preprocessor)
    )
    inputs, labels = batch
    expected = tiny_tokenizer(columns[0])
    np.testing.assert_array_equal(inputs["input_ids"], expected["input_ids"])
    assert labels.numpy().tolist() == [1, 0]
    inputs, labels, weights = preprocessor(["the"], [1], [0.5])
    assert (labels, weights) == ([1], [0.5])


@pytest.mark.slow
@pytest.mark.parametrize(
    "forget",
    [lambda: keras.utils.set_random_seed(1), keras.utils.clear_session],
)
@pytest.mark.parametrize("kind", ["tiny", "wordpiece"])
def test_a_vocabulary_outlives_tensorflows_cache(request, kind, forget):
    tokenizer = request.getfixturevalue(f"{kind}_tokenizer")
    preprocessor = TextPreprocessor(tokenizer)
    texts = tf.constant(["the bada", "of"])
    before = preprocessor(texts)["input_ids"].numpy()
    forget()
    np.testing.assert_array_equal(preprocessor(texts)["input_ids"], before)
    rows = tf.data.Dataset.from_tensors(texts).map(preprocessor)
    np.testing.assert_array_equal(next(iter(rows))["input_ids"], before)


def test_mistakes_are_one_line(tiny_tokenizer):
    preprocessor = TextPreprocessor(tiny_tokenizer)
    for texts, message in (
        (tf.constant("the"), r"strings of shape \[batch\]; they are string"),
        (tf.constant([1, 2]), r"they are int32 of shape \(2,\)"),
        ((tf.constant(["a"]),) * 3, "Got 3 string tensors; give one, or the"),
    ):
        with pytest.raises(UserError, match=message):
            preprocessor(texts)
    with pytest.raises(UserError, match="The second argument is labels"):
        preprocessor(tf.constant(["a"]), tf.constant(["b"]))
    ragged = TextPreprocessor(tiny_tokenizer, padding="none")
    with pytest.raises(UserError, match="Models read padded rows"):
        ragged(keras.Input((), dtype="string"))


@pytest.mark.slow
def test_a_model_of_strings_is_saved_with_its_vocabulary(
    tmp_path, tiny_tokenizer
):
    config = override(ModelConfig(), SMALL_MODEL | {"vocab_size": 200})
    model = AlbertForClassification(config, 2)
    preprocessor = TextPreprocessor(tiny_tokenizer, max_seq_length=16)
    strings = [keras.Input((), dtype="string") for _ in range(2)]
    logits = model(preprocessor(tuple(strings)))["logits"]
    whole = keras.Model(strings, logits)
    columns = ["the", "of and"], ["and", "the of the"]
    texts = [np.array(column, object) for column in columns]
    found = whole.predict(texts, verbose=0)
    expected = model.predict(tiny_tokenizer(*columns), verbose=0)["logits"]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    whole.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(texts, verbose=0), found)
