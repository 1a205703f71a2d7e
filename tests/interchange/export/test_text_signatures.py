"""Answers to raw strings are those of `predict`."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from export_samples import CLOSE, TEXTS, decoded

from albert_tf.config import UserError
from albert_tf.interchange.export.serving_module import ServingModule
from albert_tf.modeling.heads.pooling import POOLINGS
from albert_tf.prediction.predictor import Predictor
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.multi_label import MultiLabelClassification
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.kinds.texts import sequence_features
from albert_tf.tasks.kinds.token_classification import TokenClassification

PAIRS = list(zip(TEXTS, reversed(TEXTS), strict=True))


def test_classes_of_texts_and_pairs_are_those_of_predict(serve, predictions):
    first, second = zip(*PAIRS, strict=True)
    for signature, texts, inputs in (
        ("text", TEXTS, {"text": TEXTS}),
        ("text_pair", PAIRS, {"text": first, "text_pair": second}),
    ):
        got = serve("classification", signature, **inputs)
        want = predictions(Classification(), texts)
        probabilities = [list(row["probabilities"].values()) for row in want]
        np.testing.assert_allclose(got["probabilities"], probabilities, **CLOSE)
        assert decoded(got["label"]) == [row["prediction"] for row in want]
        # The texts differ (two of them are empty).
        assert len(np.unique(np.round(probabilities, 6), axis=0)) >= 5


def test_several_labels_are_those_of_predict(serve, predictions):
    got = serve("multi_label", "text", text=TEXTS)
    want = predictions(MultiLabelClassification(), TEXTS)
    probabilities = [list(row["probabilities"].values()) for row in want]
    np.testing.assert_allclose(got["probabilities"], probabilities, **CLOSE)
    found = [[name for name in decoded(row) if name] for row in got["labels"]]
    assert found == [row["prediction"] for row in want]
    # The threshold is that of the settings, and not 0.5.
    assert found != [
        [name for name, value in row["probabilities"].items() if value > 0.5]
        for row in want
    ]


def test_choices_are_those_of_predict(serve, predictions):
    questions = [
        (text, *(TEXTS[(number + i) % len(TEXTS)] for i in range(3)))
        for number, text in enumerate(TEXTS)
    ]
    got = serve(
        "multiple_choice",
        "serving_default",
        text=TEXTS,
        choices=[question[1:] for question in questions],
    )
    want = predictions(MultipleChoice(), questions)
    np.testing.assert_allclose(
        got["probabilities"], [row["probabilities"] for row in want], **CLOSE
    )
    letters = ["ABC"[number] for number in got["choice"]]
    assert letters == [row["prediction"] for row in want]
    assert len(set(letters)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_is_that_of_predict(load, pooling):
    """Micro-batches of other lengths have other padding."""
    loaded = load("classification", pooling=pooling)
    module = ServingModule(loaded, micro_batch_tokens=16)
    columns = map(tf.constant, zip(*PAIRS, strict=True))
    got = module.functions["text_pair"](*columns)["probabilities"].numpy()
    want = [
        [*found.probabilities.values()]
        for found in Predictor(loaded).classify(PAIRS)
    ]
    np.testing.assert_allclose(got, want, **CLOSE)
    assert len(np.unique(np.round(np.log(got), 3), axis=0)) >= 5


@pytest.mark.slow
def test_words_are_labelled_as_by_predict(serve, predictions):
    # The long text is several rows; some words are no tokens, some too many.
    texts = [text for text in TEXTS if text.split()]
    texts += ["\u0301 bada", "b" * 90 + " gule", "bada " * 23]
    got = serve("token_classification", "serving_default", text=texts)
    want = predictions(TokenClassification(), texts)
    for row, fields in enumerate(want):
        count = len(fields["words"])
        assert decoded(got["words"][row][:count]) == fields["words"]
        assert decoded(got["label"][row][:count]) == fields["prediction"]
        np.testing.assert_allclose(
            got["probabilities"][row][:count].max(axis=-1),
            fields["probabilities"],
            **CLOSE,
        )
        assert set(got["words"][row][count:]) <= {b""}
    assert len(np.unique(np.round(got["probabilities"], 6))) > 5


QUESTIONS = [
    ("", ""),
    ("gule?", ""),
    ("", "bada gule"),
    ("Where is the bada?", "The bada of gule, 1,000 times. " * 9),
    ("gule " * 30, "E\u0301cole ``bada'' \r\n\r\n ﬁn ½ ㍿ " * 4),
    ("who", " \u3000 \t "),
    ("NUL \0", "a\0b \ufeff😀🎉 İstanbul 中国 \u1112\u1161 bada" * 3),
    ("bada", "\u0301gule\n\u0301 bada\x1b \x1b\u200b the,of,8,9, "),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, vocabulary",
    [
        (Spans(), "WordPiece"),
        (Spans(), "SentencePiece"),
        (AnswerableSpans(), "SentencePiece"),
    ],
    ids=["SQuAD 1.1, WordPiece", "SQuAD 1.1", "SQuAD 2.0"],
)
def test_questions_are_answered_as_by_predict(
    load, module, wordpiece_tokenizer, kind, vocabulary
):
    loaded, served = load(kind.head), module(kind.head)
    if vocabulary == "WordPiece":
        loaded = dataclasses.replace(loaded, tokenizer=wordpiece_tokenizer)
        served = ServingModule(loaded)
    answer = served.functions["serving_default"]
    questions, contexts = zip(*QUESTIONS, strict=True)
    outputs = answer(tf.constant(questions), tf.constant(contexts))
    got = {name: value.numpy() for name, value in outputs.items()}
    want = [p.fields for p in Predictor(loaded).predict(kind, QUESTIONS)]
    answers = decoded(got["answer"])
    assert answers == [fields["prediction"] for fields in want]
    assert len({*answers}) > 3
    assert answers.count("") == 3 + 2 * isinstance(kind, AnswerableSpans)
    np.testing.assert_allclose(
        got["probability"], [fields["probability"] for fields in want], **CLOSE
    )
    for row, context in enumerate(contexts):
        start, end, first, last = (
            got[name][row]
            for name in ("char_start", "char_end", "byte_start", "byte_end")
        )
        if not answers[row]:
            assert (start, end, first, last) == (-1, -1, -1, -1)
            continue
        assert context[start:end] == answers[row]
        assert context.encode()[first:last].decode() == answers[row]
    assert ("null_probability" in got) == isinstance(kind, AnswerableSpans)


def test_texts_without_words_have_no_labels(serve):
    for texts in (["", " "], tf.zeros([0], tf.string)):
        got = serve("token_classification", "serving_default", text=texts)
        assert set(got["words"].ravel()) <= {b""}


def test_sentence_order_is_that_of_the_model(load, serve):
    got = serve(
        "pretraining",
        "sentence_order",
        text=[first for first, _ in PAIRS],
        text_pair=[second for _, second in PAIRS],
    )
    loaded = load("pretraining")
    for row, texts in enumerate(PAIRS):
        ids = loaded.tokenizer.encode_batch(texts)
        features = sequence_features([ids], loaded.tokenizer, 24, {})
        batch = features.batch(np.arange(1), features.lengths.max())
        batch["masked_lm_positions"] = np.zeros((1, 1), np.int32)
        logits = loaded.model(batch)["sentence_order_logits"]
        np.testing.assert_allclose(
            got["probabilities"][row], tf.nn.softmax(logits)[0], **CLOSE
        )


@pytest.mark.slow
def test_embeddings_are_those_of_predict(load, serve):
    got = serve("sentence_embedding", "embed", text=TEXTS)
    vectors = list(Predictor(load("sentence_embedding")).embed(TEXTS))
    for output, want in (
        ("mean_output", [vector.mean for vector in vectors]),
        ("mean_max_output", [vector.vector for vector in vectors]),
    ):
        np.testing.assert_allclose(got[output], want, **CLOSE)
    assert got["pooled_output"].shape == (len(TEXTS), 16)
    default = serve("sentence_embedding", "serving_default", text=TEXTS)
    np.testing.assert_array_equal(default["mean_output"], got["mean_output"])


def test_texts_without_masks_have_no_pieces(serve):
    texts = ["no mask", "the [MASK] bada"]
    got = serve("pretraining", "fill_mask", text=texts)
    assert set(got["pieces"][0].ravel()) == {b""}
    assert not got["probabilities"][0].any()


def test_choices_that_leave_no_room(load):
    loaded = load("multiple_choice")
    features = dataclasses.replace(loaded.features, max_choice_length=128)
    task = dataclasses.replace(loaded.task, features=features)
    loaded = dataclasses.replace(loaded, task=task)
    with pytest.raises(UserError, match="max_choice_length=128 leaves the con"):
        ServingModule(loaded)
