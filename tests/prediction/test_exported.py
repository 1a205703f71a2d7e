"""Predictions of exports: those of the model directory."""

import functools
import itertools

import numpy as np
import pytest
from training_fixtures import random_model

from albert_tf.config import FeatureConfig, UserError
from albert_tf.interchange.export.exported_model import ExportedModel
from albert_tf.interchange.export.saved_model import export_saved_model
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.prediction.exported import ExportedPredictor
from albert_tf.prediction.predictor import Predictor
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.token_classification import TokenClassification

TEXTS = ["The bada of gule.", ("ÉLÈVE", "l'École"), "", "bada " * 40, "tepu"]
QUESTIONS = [("bada?", "The bada of gule. " * 9), ("gule", "")]
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(scope="module")
def predictors(tiny_tokenizer, tmp_path_factory, classifier, export_dir):
    """A function that returns both predictors of a model with a head."""
    features = FeatureConfig(
        max_seq_length=24,
        max_choice_length=9,
        max_query_length=9,
        doc_stride=5,
        null_threshold=9.0,
        temperature=0.6,
    )

    @functools.cache
    def predictors(head):
        loaded, path = classifier, export_dir
        if head != "classification":
            model = random_model(
                head, num_hidden_layers=1, max_position_embeddings=24
            )
            task = TaskRecord("x", features)
            loaded = LoadedModel(model, tiny_tokenizer, 24, task)
            path = str(tmp_path_factory.mktemp("export"))
            export_saved_model(loaded, path)
        return Predictor(loaded, 3), ExportedPredictor(ExportedModel(path), 3)

    return predictors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "items"),
    [
        (Classification(), TEXTS),
        (Regression(), TEXTS),
        (
            MultipleChoice(),
            [("a", "bada", "gule " * 9), ("", "tepu", "x"), ("a", *"bcd")],
        ),
        (AnswerableSpans(), [*QUESTIONS, ("", "a"), ("b\ud800", "\udfff a")]),
        (
            TokenClassification(),
            ["bada of\tgule", "tepu", "bada \ufffd of", "bada " * 40],
        ),
    ],
)
def test_predictions_are_those_of_the_model_directory(predictors, kind, items):
    ours, exported = predictors(kind.head)
    want = list(ours.predict(kind, items))
    got = list(exported.predict(kind, items))
    assert len(got) == len(items)
    for one, other in zip(got, want, strict=True):
        assert list(one.fields) == list(other.fields)
        assert one.location == other.location
        for name, value in one.fields.items():
            expected = other.fields[name]
            if isinstance(value, dict):
                assert value == pytest.approx(expected, rel=1e-5, abs=1e-6)
            elif name == "probabilities" or isinstance(value, float):
                np.testing.assert_allclose(value, expected, **CLOSE)
            else:
                assert value == expected


@pytest.mark.slow
def test_words_that_an_export_does_not_read(predictors):
    _, exported = predictors("token_classification")
    items = ["tepu " * 6, "bada " * 4001]
    with pytest.raises(UserError, match="the first 4000 of these 4001 words"):
        list(exported.predict(TokenClassification(), items))
    kind = TokenClassification()
    few, many = exported.predict(kind, items, return_exceptions=True)
    assert len(few.fields["words"]) == 6
    assert "text 2: an export reads the first 4000 of these" in str(many)


@pytest.mark.slow
def test_masks_and_vectors_are_those_of_the_model_directory(predictors):
    ours, exported = predictors("pretraining")
    texts = ["the [MASK] bada", "[MASK][MASK]", "[MASK] gule", "a [MASK]"]
    for one, other in zip(
        exported.fill_mask(texts, 3), ours.fill_mask(texts, 3), strict=True
    ):
        assert one.text == other.text
        for mine, theirs in zip(one.candidates, other.candidates, strict=True):
            assert dict(mine) == pytest.approx(dict(theirs), rel=1e-5)
    for one, other in zip(
        exported.embed(texts), ours.embed(texts), strict=True
    ):
        np.testing.assert_allclose(one.mean, other.mean, **CLOSE)
        np.testing.assert_allclose(one.cls, other.cls, **CLOSE)
    items = ["x", "[MASK]"]
    none, right = exported.fill_mask(items, return_exceptions=True)
    assert "Text 1 has no [MASK]" in str(none)
    assert right.text == "[MASK]"
    pairs = [("the bada", "of gule"), ("", "bada " * 40)]
    for one, other in zip(
        exported.sentence_order(pairs), ours.sentence_order(pairs), strict=True
    ):
        assert (one.texts, one.label) == (other.texts, other.label)
        assert one.probabilities == pytest.approx(other.probabilities, rel=1e-4)
    with pytest.raises(UserError, match="Text 2 has no .* maximal length: 'x'"):
        list(exported.fill_mask(["[MASK]", "x"]))
    for top_k, expected in ((6, "at most 5, which"), (0, "a number from 1")):
        message = f"top_k={top_k}: expected {expected}"
        with pytest.raises(UserError, match=message):
            list(exported.fill_mask(["[MASK]"], top_k))
    with pytest.raises(UserError, match="top_k=-1: expected a number from 1"):
        list(ours.fill_mask(["[MASK]"], -1))
    with pytest.raises(UserError, match="'text' with label; it has"):
        list(exported.classify(["x"]))
    with pytest.raises(UserError, match="'question' with answer; it has"):
        list(exported.predict(Spans(), [("a", "b")]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("sentence_embedding", True),
        ("pretraining", False),
        ("classification", False),
        ("multiple_choice", False),
    ],
)
def test_models_of_embeddings_are_known(predictors, head, expected):
    ours, exported = predictors(head)
    assert (ours.only_embeds, exported.only_embeds) == (expected, expected)


@pytest.mark.slow
def test_kinds_that_exports_have_no_signature_for(predictors):
    class Riddles(Spans):
        name = "riddles"
        exported = None

    _, exported = predictors("pretraining")
    with pytest.raises(UserError, match=r"for riddles; give --model_dir\."):
        list(exported.predict(Riddles(), [("a", "b")]))


@pytest.mark.slow
def test_texts_are_read_when_their_batch_is_due(predictors):
    _, exported = predictors("pretraining")
    read = itertools.count()
    endless = (f"text {number}" for number in read)
    first = list(itertools.islice(exported.embed(endless), 4))
    assert [e.text for e in first] == [f"text {n}" for n in range(4)]
    assert next(read) == 6
