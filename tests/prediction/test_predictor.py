"""Predictors: texts that they take and refuse, and their outputs."""

import functools
import re

import keras
import numpy as np
import pandas
import pytest
from training_fixtures import random_model

from albert_tf.config import UserError
from albert_tf.interchange.model_directory import (
    LoadedModel,
    save_model_directory,
)
from albert_tf.prediction.predictor import Predictor
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.classification import Classification, softmax
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import Spans
from albert_tf.tasks.kinds.token_classification import TokenClassification


@pytest.fixture(scope="module")
def predictor_of(tiny_tokenizer):
    """Returns the Predictor of a small random model with a head."""

    @functools.cache
    def predictor(head):
        model = random_model(head, max_position_embeddings=256)
        return Predictor(LoadedModel(model, tiny_tokenizer, 256))

    return predictor


def test_another_backend_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(UserError, match="^Predictor runs on .* not on jax; "):
        Predictor(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: expected a number from 1."),
        ({"pooling": "max"}, "pooling='max' is not one of first, mean, mean_m"),
    ],
)
def test_options_that_are_refused(predictor_of, options, message):
    with pytest.raises(UserError, match=f"^{message}"):
        Predictor(predictor_of("classification").loaded, **options)


def test_several_predictors_log_no_warning(tiny_tokenizer, caplog):
    model = random_model("classification", max_position_embeddings=256)
    for _ in range(6):
        predictor = Predictor(LoadedModel(model, tiny_tokenizer, 256))
        assert len([*predictor.embed(["the"])]) == 1
        assert len([*predictor.classify(["the"])]) == 1
    assert "retracing" not in caplog.text


@pytest.mark.parametrize("given", ["", ("the bada",), ["the", "bada"]])
def test_a_string_is_one_text_and_two_are_a_pair(predictor_of, given):
    predictor = predictor_of("classification")
    (found,) = predictor.classify([given])
    assert found.texts == ((given,) if given == "" else tuple(given))
    example = Example(found.texts, None)
    (expected,) = predictor.predict(Classification(), [example])
    assert found.probabilities == expected.fields["probabilities"]
    (again,) = predictor.predict(Classification(), iter([given]))
    assert again.fields == expected.fields


@pytest.mark.parametrize(
    ("kind", "item", "message"),
    [
        (Classification(), ("a", "b", "c"), "Text 2 is ('a', 'b', 'c'); expec"),
        (Classification(), b"a", "Text 2 is b'a'; expected a string, or two"),
        (Classification(), ("a", 1), "Text 2 is ('a', 1); expected a string,"),
        (Spans(), "a", "Text 2 is 'a'; expected two strings, a question and"),
        (MultipleChoice(), ("a", "b"), "three strings or more, a text and its"),
        (TokenClassification(), ("a", "b"), "expected one string, of words wi"),
        (TokenClassification(), " ", "Text 2 has no words."),
    ],
)
def test_other_items_are_refused(predictor_of, kind, item, message):
    predictor = predictor_of(kind.head)
    good = ("a", "b", "c")[: kind.text_counts[0]]
    with pytest.raises(UserError, match=re.escape(message)):
        list(predictor.predict(kind, [good, item]))


def test_a_directory_is_loaded(predictor_of, tmp_path):
    loaded = predictor_of("classification").loaded
    save_model_directory(
        str(tmp_path / "model"),
        loaded.model,
        loaded.tokenizer,
        max_seq_length=256,
    )
    found, expected = (
        next(iter(predictor.classify(["the bada"])))
        for predictor in (Predictor(tmp_path / "model"), Predictor(loaded))
    )
    assert found.probabilities == expected.probabilities
    with pytest.raises(UserError, match="absent does not exist"):
        Predictor(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    "texts", ["Any", b"Any", {"Any": 1}, 7, pandas.DataFrame({"text": ["a"]})]
)
def test_texts_that_are_no_list_are_refused(predictor_of, texts):
    predictor = predictor_of("pretraining")
    shown = " ".join(repr(texts).splitlines())
    message = re.escape(f"The texts are {shown}; expected a list, each item")
    classify = predictor_of("classification").classify
    for method in (predictor.embed, predictor.fill_mask, classify):
        with pytest.raises(UserError, match=message):
            list(method(texts))


@pytest.mark.parametrize("item", [("a [MASK]", "b"), (), None])
def test_single_texts_are_strings(predictor_of, item):
    predictor = predictor_of("pretraining")
    message = re.escape(f"Text 1 is {item!r}; expected one string.")
    for method in (predictor.embed, predictor.fill_mask):
        with pytest.raises(UserError, match=message):
            list(method([item]))


def test_predictions_do_not_depend_on_batch_mates(predictor_of):
    loaded = predictor_of("classification").loaded
    texts = [("the bada",), ("",), ("ÉLÈVE 😀", "a pair"), ("tepu " * 60,)]
    together = list(Predictor(loaded, 4).classify(texts))
    alone = list(Predictor(loaded, 1).classify(texts))
    for one, other in zip(together, alone, strict=True):
        assert one.label == other.label
        assert one.probabilities == pytest.approx(other.probabilities, rel=1e-4)


def test_heads_that_a_model_lacks(predictor_of):
    with pytest.raises(
        UserError, match="no masked_lm head; use the pretrained"
    ):
        list(predictor_of("classification").fill_mask(["a [MASK]"]))
    with pytest.raises(UserError, match="has no classification head"):
        list(predictor_of("pretraining").classify([("a",)]))


def test_fill_mask_is_a_softmax_over_the_vocabulary(predictor_of):
    predictor = predictor_of("pretraining")
    (filled,) = predictor.fill_mask(["The [MASK] of [MASK]."], top_k=200)
    assert [len(candidates) for candidates in filled.candidates] == [200, 200]
    for candidates in filled.candidates:
        values = [value for _, value in candidates]
        assert values == sorted(values, reverse=True)
        assert sum(values) == pytest.approx(1.0, abs=1e-5)
    (few,) = predictor.fill_mask(["The [MASK] of [MASK]."], top_k=4)
    assert few.candidates == [places[:4] for places in filled.candidates]
    with pytest.raises(UserError, match=r"Text 1 has no \[MASK\], or one bey"):
        list(predictor.fill_mask(["The bada"]))
    with pytest.raises(UserError, match="or one beyond the model's 256 tokens"):
        list(predictor.fill_mask(["[MASK] " + "bada " * 260 + "[MASK]"]))


def test_embeddings_are_of_the_tokens_alone(predictor_of):
    loaded = predictor_of("classification").loaded
    tokenizer = loaded.tokenizer
    texts = ["the bada", "tepu " * 3]
    together = list(Predictor(loaded, 2, "mean_max").embed(texts))
    for text, embedding in zip(texts, together, strict=True):
        ids = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
        row = np.array([ids], np.int32)
        features = {"input_ids": row, "input_mask": np.ones_like(row)}
        states = loaded.model.encode(
            features | {"segment_ids": np.zeros_like(row)}
        )["sequence_output"][0]
        assert embedding.text == text
        for found, expected in (
            (embedding.mean, np.mean(states, axis=0)),
            (embedding.cls, states[0]),
            (embedding.vector[: len(states[0])], np.mean(states, axis=0)),
            (embedding.vector[len(states[0]) :], np.max(states, axis=0)),
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_example_is_made_of_a_tuple():
    for texts in ("Any text.", ["a", "b"], (), ("a", "b", "c")):
        with pytest.raises(UserError, match="expected a tuple of one or two"):
            Example(texts, None)


def test_errors_in_place_of_answers(predictor_of):
    """An item, an example or an answer fails, in a batch with good ones."""
    tagger = predictor_of("token_classification")
    items = ["a b", " ", ("a", "b"), UserError("Not UTF-8."), "c"]
    kind = TokenClassification()
    found = list(tagger.predict(kind, items, return_exceptions=True))
    words = [f.fields["words"] for f in (found[0], found[-1])]
    assert words == [["a", "b"], ["c"]]
    errors = [str(error) for error in found[1:-1]]
    assert errors[0] == "Text 2 has no words."
    assert errors[1].startswith("Text 3 is ('a', 'b'); expected one string")
    assert errors[2] == "Not UTF-8."
    predictor = predictor_of("pretraining")
    texts = ["a [MASK]", "b", "[MASK]"]
    first, none, last = predictor.fill_mask(texts, return_exceptions=True)
    assert (first.text, last.text) == ("a [MASK]", "[MASK]")
    assert "Text 2 has no [MASK]" in str(none)
    # What no item can be answered for is raised.
    with pytest.raises(UserError, match="has no classification head"):
        list(predictor.classify(["a"], return_exceptions=True))
    with pytest.raises(UserError, match="The texts are 'a'; expected a list"):
        list(predictor.embed("a", return_exceptions=True))


def test_what_comes_before_an_error_is_answered(predictor_of):
    found = predictor_of("classification").classify(["a", 7, "b"])
    assert next(found).texts == ("a",)
    with pytest.raises(UserError, match="Text 2 is 7; expected a string"):
        next(found)


def test_a_refused_batch_is_divided(predictor_of, monkeypatch):
    predictor = predictor_of("classification")
    predictions = predictor._predictions

    def refuse(kind, batch):
        if any("bad" in example.texts for example in batch):
            raise UserError("Refused.")
        return predictions(kind, batch)

    monkeypatch.setattr(predictor, "_predictions", refuse)
    texts = ["a", "b", "bad", "c", "d", "e", "bad"]
    found = list(predictor.classify(texts, return_exceptions=True))
    assert [i for i, f in enumerate(found) if isinstance(f, UserError)] == [
        2,
        6,
    ]
    assert [f.texts[0] for f in found[3:6]] == ["c", "d", "e"]


def test_examples_with_other_numbers_of_choices(predictor_of):
    predictor = predictor_of("multiple_choice")
    items = [("a", *"bc"), ("a", *"bcde"), ("a", *"cb")]
    found = list(predictor.predict(MultipleChoice(), items))
    numbers = [len(f.fields["probabilities"]) for f in found]
    assert numbers == [2, 4, 2]
    (alone,) = predictor.predict(MultipleChoice(), items[1:2])
    assert found[1].fields["probabilities"] == pytest.approx(
        alone.fields["probabilities"], rel=1e-5
    )


def test_the_order_of_sentences(predictor_of):
    predictor = predictor_of("pretraining")
    loaded = predictor.loaded
    pairs = [("the bada", "of gule"), ("of gule", "the bada " * 9), ("", "")]
    found = list(predictor.sentence_order(pairs))
    for pair, answer in zip(pairs, found, strict=True):
        first, second = map(loaded.tokenizer.encode, pair)
        sep = loaded.tokenizer.sep_id
        ids = [loaded.tokenizer.cls_id, *first, sep, *second, sep]
        row = np.array([ids], np.int32)
        features = {
            "input_ids": row,
            "segment_ids": np.array(
                [[0] * (len(first) + 2) + [1] * (len(second) + 1)], np.int32
            ),
            "masked_lm_positions": np.zeros((1, 1), np.int32),
        }
        logits = loaded.model(features)["sentence_order_logits"].numpy()
        expected = softmax(logits)[0]
        assert answer.texts == pair
        assert list(answer.probabilities) == ["in order", "swapped"]
        np.testing.assert_allclose(
            list(answer.probabilities.values()), expected, rtol=1e-4
        )
        assert answer.label == ["in order", "swapped"][expected.argmax()]
    with pytest.raises(UserError, match="Text 1 is 'a'; expected two strings"):
        list(predictor.sentence_order(["a"]))
    with pytest.raises(UserError, match="no sentence_order head; use the pre"):
        list(predictor_of("classification").sentence_order([("a", "b")]))
