"""The exported model answers as the model does; the files beside it."""

import dataclasses
import functools
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet
from saved_models import foreign_operations, operations
from tensorflow.core.framework.tensor_pb2 import TensorProto

from albert_tf.config import FeatureConfig, ModelConfig, UserError
from albert_tf.interchange import length_groups, serving
from albert_tf.interchange.convert import models_by_head
from albert_tf.interchange.exported_weights import PRECISIONS
from albert_tf.interchange.model_directory import (
    LoadedModel,
    save_model_directory,
)
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.interchange.saved_model import ExportedModel
from albert_tf.interchange.serving import export_saved_model
from albert_tf.interchange.signatures import ServingModule
from albert_tf.io import files
from albert_tf.jobs.predict import Predictor
from albert_tf.records.example_wire import encode_examples
from albert_tf.records.tfrecord import read_records
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.texts import sequence_features
from albert_tf.tasks.kinds.token_classification import TokenClassification
from albert_tf.text.tokenizer import load_tokenizer

TEXTS = [
    "The bada of gule.",
    "ÉLÈVE à l'École, BADA",
    "",
    "   ",
    "smile 😀🎉 and 1,000, more",
    "long bada gule " * 40,
    "nul \0 and tab\tand\nline",
]
PAIRS = list(zip(TEXTS, reversed(TEXTS), strict=True))
FEATURES = FeatureConfig(
    max_seq_length=24,
    max_choice_length=9,
    max_query_length=8,
    doc_stride=5,
    max_answer_length=6,
    # Random weights find an answer in some of QUESTIONS.
    null_threshold=0.881,
)
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(scope="module")
def load(tiny_tokenizer):
    """A function that returns a model of random weights with a head."""

    @functools.cache
    def load(head):
        config = ModelConfig(
            vocab_size=tiny_tokenizer.vocab_size,
            embedding_size=8,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=24,
        )
        kind = models_by_head()[head]
        labels = ["sea", "land", "air"] if kind.takes_labels() else None
        model = kind(config, labels=labels)
        rng = np.random.default_rng(8)
        for variable in model.trainable_variables:
            variable.assign(rng.normal(size=variable.shape) * 0.5)
        task = TaskRecord("mood", FEATURES)
        return LoadedModel(model, tiny_tokenizer, 24, task)

    return load


@pytest.fixture(scope="module")
def module(load):
    """A function that returns the served model with a head."""
    return functools.cache(lambda head: ServingModule(load(head)))


@pytest.fixture(scope="module")
def serve(module):
    """A function that answers as a signature of the model with a head."""

    def serve(head, signature, **inputs):
        function = module(head).functions[signature]
        names = [spec.name for spec in function.input_signature]
        answers = function(*(tf.constant(inputs.pop(name)) for name in names))
        assert not inputs
        return {name: value.numpy() for name, value in answers.items()}

    return serve


@pytest.fixture(scope="module")
def predictions(load):
    """A function that returns the fields that `predict` gives for texts."""

    def predictions(kind, texts):
        found = Predictor(load(kind.head)).predict(kind, texts)
        return [prediction.fields for prediction in found]

    return predictions


@pytest.fixture(scope="module")
def classifier(load):
    return load("classification")


@pytest.fixture(scope="module")
def exported(classifier, tmp_path_factory):
    return export_saved_model(
        classifier,
        str(tmp_path_factory.mktemp("export") / "albert"),
        origin={"command": "`export | all`"},
    )


def decoded(strings):
    return [value.decode() for value in strings]


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


def test_numbers_are_those_of_predict(serve, predictions):
    got = serve("regression", "serving_default", text=TEXTS)
    want = [row["prediction"] for row in predictions(Regression(), TEXTS)]
    np.testing.assert_allclose(got["predictions"], want, **CLOSE)


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


def test_masks_are_filled_as_by_predict(load, serve):
    texts = ["the [MASK] bada", "[MASK][MASK]", "no mask"]
    got = serve("pretraining", "fill_mask", text=texts)
    predictor = Predictor(load("pretraining"))
    for row, filled in enumerate(predictor.fill_mask(texts[:2])):
        for mask, candidates in enumerate(filled.candidates):
            pieces, values = zip(*candidates, strict=True)
            assert decoded(got["pieces"][row, mask]) == list(pieces)
            np.testing.assert_allclose(
                got["probabilities"][row, mask], values, **CLOSE
            )
    assert set(got["pieces"][2].ravel()) == {b""}
    assert not got["probabilities"][2].any()


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


@pytest.mark.parametrize(
    "head", ["pretraining", "sentence_embedding", "classification"]
)
def test_embeddings_are_those_of_predict(load, serve, head):
    got = serve(head, "embed", text=TEXTS)
    want = [vector.mean for vector in Predictor(load(head)).embed(TEXTS)]
    np.testing.assert_allclose(got["mean_output"], want, **CLOSE)
    assert got["pooled_output"].shape == (len(TEXTS), 16)
    if head != "classification":
        default = serve(head, "serving_default", text=TEXTS)
        np.testing.assert_array_equal(
            default["mean_output"], got["mean_output"]
        )


def ids_of(loaded, text, padding):
    """Returns a row of a batch by name, with padding."""
    tokenizer = loaded.tokenizer
    ids = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
    return {
        "input_ids": np.array([ids + [tokenizer.pad_id] * padding], np.int32),
        "input_mask": np.array([[1] * len(ids) + [0] * padding], np.int32),
        "segment_ids": np.zeros((1, len(ids) + padding), np.int32),
    }


def serialized(features):
    columns = {
        name: (values[0], np.array([len(values[0])]))
        for name, values in features.items()
    }
    return encode_examples(columns)[0]


def test_tokens_and_examples_are_answered_alike(load, serve):
    loaded = load("classification")
    batch = [ids_of(loaded, text, n) for n, text in enumerate(TEXTS[:3])]
    examples = [serialized(row) for row in batch]
    # Without a mask and segments; no padding then.
    examples.append(serialized({"input_ids": batch[0]["input_ids"]}))
    got = serve("classification", "examples", examples=examples)
    for number, row in enumerate([*batch, batch[0]]):
        want = serve("classification", "tokens", **row)
        for name in ("probabilities", "label"):
            assert want[name].shape[0] == 1
        np.testing.assert_allclose(
            got["probabilities"][number], want["probabilities"][0], **CLOSE
        )
        old = serve("classification", "ids", **row)
        np.testing.assert_array_equal(
            old["probabilities"], want["probabilities"]
        )
    text = serve("classification", "text", text=TEXTS[:1])
    np.testing.assert_allclose(
        got["probabilities"][0], text["probabilities"][0], **CLOSE
    )


@pytest.mark.parametrize("head", ["classification", "token_classification"])
def test_tokens_of_a_batch_are_answered_as_the_model_answers(load, serve, head):
    loaded = load(head)
    lengths = np.array([[20], [2], [9], [1], [12]])
    columns = np.arange(20)
    features = {
        "input_ids": 5 + (columns * lengths) % 7,
        "input_mask": columns < lengths,
        "segment_ids": np.zeros_like(columns + lengths),
    }
    features = {n: v.astype(np.int32) for n, v in features.items()}
    got = serve(head, "tokens", **features)["probabilities"]
    # Those of padding too.
    want = loaded.model.heads[head].answers(loaded.model(features))
    np.testing.assert_allclose(got, want["probabilities"], **CLOSE)


def test_a_long_row_of_tokens_is_computed_alone(load, monkeypatch):
    loaded = load("classification")
    shapes = []
    encoder = type(loaded.model.encoder)
    encode = encoder.__call__

    def record(self, input_ids, *args, **options):
        tf.py_function(
            lambda ids: shapes.append(ids.shape.as_list()), [input_ids], []
        )
        return encode(self, input_ids, *args, **options)

    monkeypatch.setattr(encoder, "__call__", record)
    monkeypatch.setattr(length_groups, "_WIDTHS", (4, 8))
    lengths = np.array([[2], [2], [20], [2], [2]])
    mask = (np.arange(20) < lengths).astype(np.int32)
    ServingModule(loaded).functions["tokens"](
        *map(tf.constant, (mask, mask, mask * 0))
    )
    assert sorted(shapes) == [[1, 20], [2, 2], [2, 2]]


def test_inputs_whose_shapes_disagree(load, serve):
    row = ids_of(load("classification"), "bada", 0)
    row["segment_ids"] = row["segment_ids"][:, :0]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="segment_ids must have the shape of input_ids",
    ):
        serve("classification", "tokens", **row)


@pytest.mark.parametrize(
    ("head", "name", "number"),
    [("classification", "input_mask", 2), ("answerable_span", "p_mask", -1)],
)
def test_masks_are_0_and_1(load, serve, head, name, number):
    row = ids_of(load("classification"), "bada", 0)
    row.setdefault(name, np.zeros_like(row["input_mask"]))[0, -1] = number
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=f"{name} must be from 0"
    ):
        serve(head, "tokens", **row)


def test_examples_of_choices(load, serve):
    row = ids_of(load("multiple_choice"), "bada", 0)
    row = {n: np.pad(v, ((0, 0), (0, 24 - v.shape[1]))) for n, v in row.items()}
    examples = [serialized({n: np.tile(v, 3) for n, v in row.items()})]
    got = serve("multiple_choice", "examples", examples=examples)
    want = serve(
        "multiple_choice", "tokens", **{n: v[None] for n, v in row.items()}
    )
    assert want["probabilities"].shape == (1, 1)
    np.testing.assert_allclose(got["probabilities"], [[1 / 3] * 3], **CLOSE)


def test_the_default_of_a_task_of_pairs_takes_pairs(classifier, module):
    record = TaskRecord("mood", FEATURES, pairs=True)
    paired = ServingModule(dataclasses.replace(classifier, task=record))
    single = module("classification")
    for served, name in ((paired, "text_pair"), (single, "text")):
        assert served.functions["serving_default"] is served.functions[name]


def test_any_batch_size(exported):
    answer = tf.saved_model.load(exported).signatures["serving_default"]
    for size in (0, 1, 65):
        got = answer(text=tf.constant((TEXTS * 10)[:size], tf.string))
        assert got["probabilities"].shape == (size, 3)
        assert got["label"].shape == (size,)


def test_each_weight_is_exported_once(classifier, exported):
    stored = tf.train.list_variables(
        os.path.join(exported, "variables/variables")
    )
    shapes = [tuple(shape) for name, shape in stored if "VALUE" in name]
    weights = [tuple(weight.shape) for weight in classifier.model.weights]
    assert sorted(shapes) == sorted(weights)


@pytest.fixture(scope="module")
def model_directory(classifier, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("model"))
    save_model_directory(
        path,
        classifier.model,
        classifier.tokenizer,
        max_seq_length=24,
        task=classifier.task,
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "precision, close", [("bfloat16", {"atol": 0.02}), ("int8", CLOSE)]
)
def test_an_export_has_the_weights_that_were_evaluated(
    model_directory, serve, tmp_path, precision, close
):
    loaded = PRECISIONS[precision].load(model_directory)
    path = export_saved_model(loaded, str(tmp_path), precision=precision)
    reader = tf.train.load_checkpoint(os.path.join(path, "variables/variables"))
    types = reader.get_variable_to_dtype_map()
    shapes = reader.get_variable_to_shape_map()
    matrices = {types[name].name for name in shapes if len(shapes[name]) > 1}
    assert matrices == {precision}
    text = tf.saved_model.load(path).signatures["text"]
    got = text(text=tf.constant(TEXTS))["probabilities"]
    want = [
        list(answer.probabilities.values())
        for answer in Predictor(loaded).classify(TEXTS)
    ]
    np.testing.assert_allclose(got, want, **close)
    # And not those of float32.
    exact = serve("classification", "text", text=TEXTS)["probabilities"]
    assert 1e-4 < np.abs(got - exact).max() < 0.1


def test_int8_weights_are_near(classifier, model_directory):
    rounded = PRECISIONS["int8"].load(model_directory).model
    for ours, exact in zip(
        rounded.weights, classifier.model.weights, strict=True
    ):
        steps = np.zeros(1)
        if len(exact.shape) > 1:
            steps = np.abs(exact.numpy()).max(axis=0) / 127
        error = np.abs(ours.numpy() - exact.numpy())
        assert (error <= steps / 2 + 1e-7).all(), exact.path


def test_versions(classifier, tmp_path, monkeypatch):
    for place, name in ((tf.saved_model, "save"), (serving, "_write_files")):
        monkeypatch.setattr(place, name, lambda *_, **signatures: None)
    target = tmp_path / "albert"
    (target / "7").mkdir(parents=True)
    (target / "notes").mkdir()
    path = export_saved_model(classifier, str(target))
    assert path == str(target / "8")
    assert export_saved_model(classifier, str(target), version=3).endswith("3")
    assert sorted(os.listdir(target)) == ["3", "7", "8", "notes"]
    with pytest.raises(UserError, match="version=7: .*/7 exists, and versions"):
        export_saved_model(classifier, str(target), version=7)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="is a file"):
        export_saved_model(classifier, str(tmp_path / "file"))


def test_choices_that_leave_no_room(load):
    loaded = dataclasses.replace(load("multiple_choice"), task=None)
    with pytest.raises(UserError, match="max_choice_length=128 leaves the con"):
        ServingModule(loaded)


def test_operations_are_those_of_released_servers(exported):
    assert foreign_operations(exported) == {
        "NormalizeUTF8",
        "SentencepieceOp",
        "SentencepieceTokenizeOp",
    }
    # Of those with effects, the ones for the SavedModel's own variables.
    outside = re.compile("PyFunc|File|Directory|Print|Save|Restore|Checkpoint")
    assert set(filter(outside.search, operations(exported))) == {
        *("RestoreV2", "SaveV2", "ShardedFilename", "MergeV2Checkpoints")
    }


def test_files_describe_the_model(classifier, exported):
    assets = os.path.join(exported, "assets")
    fingerprint = load_tokenizer(assets).fingerprint
    assert fingerprint == classifier.tokenizer.fingerprint
    with open(os.path.join(assets, "labels.json"), encoding="utf-8") as file:
        assert json.load(file) == ["sea", "land", "air"]
    with open(os.path.join(exported, "README.md"), encoding="utf-8") as file:
        text = file.read()
    for line in (
        "| `tokens` | The same for token ids, of any batch and length. | "
        "`input_ids` int32 [batch, any], `input_mask` int32 [batch, any], "
        "`segment_ids` int32 [batch, any] | `label` string [batch], "
        "`probabilities` float32 [batch, 3] |",
        "| `mean_output` | mean state of the tokens |",
        "(`assets/labels.json`): `sea`, `land`, `air`.",
        "| truncation | a text after 20,000 bytes of UTF-8, an input after 24 "
        "tokens |",
        "| task | mood |",
        "| command | `export &#124; all` |",
        f"fingerprint {fingerprint} |",
    ):
        assert line in text


def fields(message):
    """Returns the numbers and values of a serialized message's fields."""
    found = UnknownFieldSet(Empty.FromString(message))
    return [(field.field_number, field.data) for field in found]


def requests_in(records):
    """Yields model, signature and inputs of serialized PredictionLogs."""
    for record in records:
        # PredictionLog.predict_log.request
        request = fields(dict(fields(dict(fields(record))[6]))[1])
        spec = dict(fields(dict(request)[1]))
        entries = [dict(fields(value)) for n, value in request if n == 2]
        inputs = {
            entry[1].decode(): tf.make_ndarray(TensorProto.FromString(entry[2]))
            for entry in entries
        }
        yield spec[1].decode(), spec[3].decode(), inputs


def test_the_warm_up_file_has_a_request_for_each_signature(exported):
    path = os.path.join(exported, "assets.extra/tf_serving_warmup_requests")
    models, names, _ = zip(*requests_in(read_records(path)), strict=True)
    assert set(models) == {"albert"}
    assert names == (
        *("serving_default", "text", "text_pair", "embed", "tokens"),
        *("examples", "ids"),
    )


def test_warm_up_requests_reach_each_group_of_lengths(load):
    features = dataclasses.replace(FEATURES, max_seq_length=150)
    task = TaskRecord("mood", features, False)
    loaded = dataclasses.replace(load("classification"), task=task)
    lengths = {}
    records = serving.warm_up_requests(ServingModule(loaded), "albert")
    for _, signature, inputs in requests_in(records):
        texts = [
            loaded.tokenizer.encode(text.decode())
            for name, values in inputs.items()
            if name.startswith("text")
            for text in values
        ]
        tokens = sum(map(len, texts)) + len(texts) + 1
        lengths.setdefault(signature, []).append(tokens)
    for signature in ("text", "text_pair", "embed"):
        groups = np.searchsorted([32, 64, 128, 150], lengths[signature])
        assert groups.tolist() == [0, 1, 2, 3], (signature, lengths)
    assert len(lengths["tokens"]) == len(lengths["examples"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        *("pretraining", "classification", "regression", "multiple_choice"),
        *("token_classification", "sentence_embedding"),
        *("span", "answerable_span"),
    ],
)
def test_warm_up_requests_are_answered(module, serve, head):
    records = serving.warm_up_requests(module(head), head)
    for _, signature, inputs in requests_in(records):
        answers = serve(head, signature, **inputs)
        assert {value.shape[0] for value in answers.values()} == {1}


def test_settings_of_the_server(exported):
    def text_of(name):
        path = os.path.join(exported, "assets.extra", name)
        with open(path, encoding="utf-8") as file:
            return file.read()

    models = text_of("models.config")
    assert 'name: "albert"\n    base_path: "/models/albert"\n' in models
    # The server would pad with a row's first value, a mask with 1.
    assert "\npad_variable_length_inputs: false\n" in text_of("batching.config")
    assert "enable: true" in text_of("monitoring.config")


@pytest.mark.slow
def test_answers_through_the_c_api(load, serve, exported, tmp_path):
    pairs = {"text": TEXTS, "text_pair": TEXTS[::-1]}
    choices = {"text": TEXTS[:2], "choices": [TEXTS[:3], TEXTS[2:5]]}
    questions = {"question": TEXTS[:3], "context": TEXTS[-3:]}
    given = [
        ("pretraining", "fill_mask", {"text": ["the [MASK] bada", ""]}),
        ("pretraining", "sentence_order", pairs),
        ("pretraining", "embed", {"text": TEXTS}),
        ("classification", "text_pair", pairs),
        ("multiple_choice", "serving_default", choices),
        ("token_classification", "serving_default", {"text": TEXTS}),
        ("answerable_span", "serving_default", questions),
    ]
    exports = {"classification": exported}
    for head, _, _ in given:
        if head not in exports:
            place = str(tmp_path / head)
            exports[head] = export_saved_model(load(head), place)
    requests = []
    for head, name, inputs in given:
        signature = ExportedModel(exports[head]).signatures[name]
        feeds, fetches = signature.tensors
        texts = [inputs[of_input] for of_input in signature.inputs]
        by_tensor = dict(zip(feeds, texts, strict=True))
        requests.append((exports[head], by_tensor, fetches))
    client = os.path.join(os.path.dirname(__file__), "c_api_client.py")
    run = subprocess.run(
        [sys.executable, client, json.dumps(requests)],
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    answers = json.loads(run.stdout)
    for (head, name, inputs), found in zip(given, answers, strict=True):
        want = sorted(serve(head, name, **inputs).items())
        for (_, value), answer in zip(want, found, strict=True):
            if value.dtype == object:
                assert answer == decoded(value.ravel())
            else:
                np.testing.assert_allclose(answer, value.ravel(), **CLOSE)


@pytest.mark.slow
def test_saved_model_cli(exported, serve, tmp_path):
    program = (
        "import tensorflow_text; "
        "from tensorflow.python.tools.saved_model_cli import main; main()"
    )
    text = TEXTS[1].replace("'", "\\'")
    subprocess.run(
        [
            *(sys.executable, "-c", program, "run"),
            *("--dir", exported, "--tag_set", "serve"),
            *("--signature_def", "serving_default"),
            *("--input_exprs", f"text=['{text}', '']"),
            *("--outdir", tmp_path),
        ],
        check=True,
        capture_output=True,
    )
    want = serve("classification", "text", text=[TEXTS[1], ""])
    np.testing.assert_allclose(
        np.load(tmp_path / "probabilities.npy"), want["probabilities"], **CLOSE
    )


@pytest.mark.slow
def test_an_export_to_a_bucket(classifier, exported):
    files.makedirs("ram://serving/7")
    path = export_saved_model(classifier, "ram://serving")
    assert path == "ram://serving/8"
    near, far = (
        tf.saved_model.load(place).signatures["serving_default"](
            tf.constant(TEXTS)
        )
        for place in (exported, path)
    )
    np.testing.assert_array_equal(far["probabilities"], near["probabilities"])
    assert files.isfile(f"{path}/assets.extra/tf_serving_warmup_requests")
    with pytest.raises(UserError, match="saved_model.pb is a file"):
        export_saved_model(classifier, f"{path}/saved_model.pb")
