"""The exported model, in this process and in one with none of our code."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from saved_models import foreign_operations

from albert_tf.config import ModelConfig, UserError
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.interchange.serving import ServingModule, export_saved_model
from albert_tf.io import files
from albert_tf.jobs.predict import Predictor
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    AlbertForRegression,
    AlbertForSentenceEmbedding,
    AlbertForTokenClassification,
)

TEXTS = [
    "The bada of gule.",
    "ÉLÈVE à l'École, BADA",
    "",
    "   ",
    "smile 😀🎉 and 1,000, more",
    "long bada gule " * 40,
    "nul \0 and tab\tand\nline",
]


def build(tiny_tokenizer, labels):
    config = ModelConfig(
        vocab_size=tiny_tokenizer.vocab_size,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
    )
    model = (
        AlbertForClassification(config, labels=labels)
        if labels
        else AlbertForPretraining(config)
    )
    rng = np.random.default_rng(8)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape) * 0.5)
    return LoadedModel(model, tiny_tokenizer, 24)


@pytest.fixture(scope="module")
def classifier(tiny_tokenizer):
    return build(tiny_tokenizer, ["sea", "land", "air"])


@pytest.fixture(scope="module")
def exported(classifier, tmp_path_factory):
    return export_saved_model(
        classifier, str(tmp_path_factory.mktemp("export") / "albert")
    )


def expected(classifier):
    return list(Predictor(classifier).classify([(text,) for text in TEXTS]))


def test_outputs_are_those_of_predictor(classifier, exported):
    answer = tf.saved_model.load(exported).signatures["serving_default"]
    got = answer(tf.constant(TEXTS))
    want = expected(classifier)
    np.testing.assert_allclose(
        got["probabilities"],
        [list(row.probabilities.values()) for row in want],
        rtol=1e-5,
        atol=1e-7,
    )
    assert [label.decode() for label in got["label"].numpy()] == [
        row.label for row in want
    ]
    # The texts differ (two of them are empty).
    assert len({tuple(row.probabilities.values()) for row in want}) >= 5
    assert got["probabilities"].dtype == tf.float32


def test_any_batch_size(exported):
    answer = tf.saved_model.load(exported).signatures["serving_default"]
    for size in (0, 1, 2, 65):
        got = answer(text=tf.constant((TEXTS * 10)[:size], tf.string))
        assert got["probabilities"].shape == (size, 3)
        assert got["label"].shape == (size,)


def test_ids_signature(classifier, exported):
    tokenizer = classifier.tokenizer
    ids = [tokenizer.cls_id, *tokenizer.encode(TEXTS[0]), tokenizer.sep_id]
    row = np.array([ids + [tokenizer.pad_id] * 3], np.int32)
    mask = np.array([[1] * len(ids) + [0] * 3], np.int32)
    got = tf.saved_model.load(exported).signatures["ids"](
        input_ids=tf.constant(row),
        input_mask=tf.constant(mask),
        segment_ids=tf.zeros_like(row),
    )
    np.testing.assert_allclose(
        got["probabilities"][0],
        list(expected(classifier)[0].probabilities.values()),
        rtol=1e-4,
    )


def test_each_weight_is_exported_once(classifier, exported):
    stored = tf.train.list_variables(
        os.path.join(exported, "variables/variables")
    )
    shapes = [tuple(shape) for name, shape in stored if "VALUE" in name]
    weights = [tuple(weight.shape) for weight in classifier.model.weights]
    assert sorted(shapes) == sorted(weights)


def test_versions_count_up_and_are_complete(classifier, tmp_path):
    target = tmp_path / "albert"
    (target / "7").mkdir(parents=True)
    (target / "notes").mkdir()
    path = export_saved_model(classifier, str(target))
    assert path == str(target / "8")
    assert sorted(os.listdir(target)) == ["7", "8", "notes"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="is a file"):
        export_saved_model(classifier, str(tmp_path / "file"))


def test_a_pretrained_model_gives_embeddings(tiny_tokenizer):
    loaded = build(tiny_tokenizer, None)
    module = ServingModule(loaded)
    got = module.serve_text(tf.constant(TEXTS[:2]))
    tokenizer = tiny_tokenizer
    ids = [tokenizer.cls_id, *tokenizer.encode(TEXTS[0]), tokenizer.sep_id]
    row = np.array([ids], np.int32)
    want = loaded.model.encode(
        {
            "input_ids": row,
            "input_mask": np.ones_like(row),
            "segment_ids": np.zeros_like(row),
        }
    )
    np.testing.assert_allclose(
        got["pooled_output"][0], want["pooled_output"][0], rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        got["mean_output"][0],
        np.mean(want["sequence_output"][0], axis=0),
        rtol=1e-4,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("kind", "options", "output"),
    [
        (AlbertForRegression, {}, "predictions"),
        (AlbertForTokenClassification, {"labels": ["a", "b"]}, "label"),
        (AlbertForSentenceEmbedding, {"pooler": False}, "mean_output"),
    ],
)
def test_outputs_of_other_heads(tiny_tokenizer, kind, options, output):
    config = build(tiny_tokenizer, None).model.config
    loaded = LoadedModel(kind(config, **options), tiny_tokenizer, 24)
    ids = np.array([[2, 9, 8, 3], [2, 7, 3, 0]], np.int32)
    features = {
        "input_ids": ids,
        "input_mask": (ids > 0).astype(np.int32),
        "segment_ids": np.zeros_like(ids),
    }
    module = ServingModule(loaded)
    got = module.serve_ids(**features)
    outputs = loaded.model(features)
    if output == "label":
        labels = np.array([b"a", b"b"])
        want = labels[np.argmax(outputs["logits"], -1)]
        np.testing.assert_array_equal(got[output], want)
    else:
        name = {"mean_output": "mean_embedding"}.get(output, output)
        np.testing.assert_allclose(
            got[output], outputs[name], rtol=1e-5, atol=1e-6
        )
    assert "pooled_output" not in got


def test_a_model_of_questions_is_not_exported(tiny_tokenizer, tmp_path):
    config = build(tiny_tokenizer, None).model.config
    loaded = LoadedModel(AlbertForQuestionAnswering(config), tiny_tokenizer, 24)
    with pytest.raises(UserError, match="AlbertForQuestionAnswering reads mo"):
        export_saved_model(loaded, str(tmp_path / "albert"))
    assert not (tmp_path / "albert").exists()


def test_operations_are_those_of_released_servers(exported):
    assert foreign_operations(exported) == {
        "NormalizeUTF8",
        "SentencepieceOp",
        "SentencepieceTokenizeOp",
    }


@pytest.mark.slow
def test_saved_model_cli(classifier, exported, tmp_path):
    """A process with none of our code: TensorFlow's and TensorFlow Text's."""
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
    np.testing.assert_allclose(
        np.load(tmp_path / "probabilities.npy"),
        [
            list(expected(classifier)[row].probabilities.values())
            for row in (1, 2)
        ],
        rtol=1e-5,
        atol=1e-7,
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
    with pytest.raises(UserError, match="saved_model.pb is a file"):
        export_saved_model(classifier, f"{path}/saved_model.pb")
