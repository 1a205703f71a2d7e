"""The exported model, in this process and in one with none of our code."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import ModelConfig, UserError
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.interchange.serving import export_saved_model
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


def test_gives_what_predict_gives(classifier, exported):
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
    # The texts are told apart (two of them are empty).
    assert len({tuple(row.probabilities.values()) for row in want}) >= 5
    assert got["probabilities"].dtype == tf.float32


@pytest.mark.parametrize("size", [0, 1, 2, 65])
def test_any_batch_size(exported, size):
    answer = tf.saved_model.load(exported).signatures["serving_default"]
    texts = (TEXTS * 10)[:size]
    got = answer(text=tf.constant(texts, tf.string))
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


def test_versions_count_up_and_are_whole(classifier, tmp_path):
    target = tmp_path / "albert"
    (target / "7").mkdir(parents=True)
    (target / "notes").mkdir()
    path = export_saved_model(classifier, str(target))
    assert path == str(target / "8")
    assert sorted(os.listdir(target)) == ["7", "8", "notes"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="is a file"):
        export_saved_model(classifier, str(tmp_path / "file"))


def test_a_pretrained_model_gives_embeddings(tiny_tokenizer, tmp_path):
    loaded = build(tiny_tokenizer, None)
    path = export_saved_model(loaded, str(tmp_path / "albert"))
    answer = tf.saved_model.load(path).signatures["serving_default"]
    got = answer(tf.constant(TEXTS[:2]))
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
def test_other_heads_answer_as_the_model_does(
    tiny_tokenizer, tmp_path, kind, options, output
):
    config = build(tiny_tokenizer, None).model.config
    loaded = LoadedModel(kind(config, **options), tiny_tokenizer, 24)
    path = export_saved_model(loaded, str(tmp_path / "albert"))
    ids = np.array([[2, 9, 8, 3], [2, 7, 3, 0]], np.int32)
    features = {
        "input_ids": ids,
        "input_mask": (ids > 0).astype(np.int32),
        "segment_ids": np.zeros_like(ids),
    }
    answer = tf.saved_model.load(path).signatures["ids"]
    got = answer(**{k: tf.constant(v) for k, v in features.items()})
    outputs = loaded.model(features)
    want = {
        "predictions": lambda: outputs["predictions"],
        "label": lambda: np.array([b"a", b"b"])[
            np.argmax(outputs["logits"], -1)
        ],
        "mean_output": lambda: outputs["mean_embedding"],
    }[output]()
    if output == "label":
        np.testing.assert_array_equal(got[output], want)
    else:
        np.testing.assert_allclose(got[output], want, rtol=1e-5, atol=1e-6)
    assert "pooled_output" not in got


def test_a_model_that_reads_more_than_a_text_is_not_exported(
    tiny_tokenizer, tmp_path
):
    config = build(tiny_tokenizer, None).model.config
    loaded = LoadedModel(AlbertForQuestionAnswering(config), tiny_tokenizer, 24)
    with pytest.raises(UserError, match="AlbertForQuestionAnswering reads mo"):
        export_saved_model(loaded, str(tmp_path / "albert"))
    assert not (tmp_path / "albert").exists()


# TensorFlow Text operations that every TensorFlow Serving release has.
WHITE_LIST = {"NormalizeUTF8", "SentencepieceOp", "SentencepieceTokenizeOp"}


def test_operations_are_those_that_servers_have(exported):
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    saved = SavedModel()
    with open(os.path.join(exported, "saved_model.pb"), "rb") as file:
        saved.ParseFromString(file.read())
    graph = saved.meta_graphs[0].graph_def
    operations = {node.op for node in graph.node}
    for function in graph.library.function:
        operations |= {node.op for node in function.node_def}
    functions = {f.signature.name for f in graph.library.function}
    from tensorflow.python.framework import op_def_registry

    foreign = {
        name
        for name in operations - functions
        if "entencepiece" in name
        or "UTF8" in name
        or ">" in name
        or op_def_registry.get(name) is None
    }
    assert foreign == WHITE_LIST


@pytest.mark.slow
def test_saved_model_cli(classifier, exported, tmp_path):
    """As README has it: the program, with TensorFlow Text's operations."""
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
def test_in_a_process_with_none_of_our_code(classifier, exported, tmp_path):
    script = """
import json, sys
import tensorflow as tf
import tensorflow_text
answer = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
got = answer(tf.constant(json.load(open(sys.argv[2]))))
ours = [n for n in sys.modules if n.split(".")[0] in ("albert_tf", "bin")]
print(json.dumps([got["probabilities"].numpy().tolist(), ours]))
"""
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    done = subprocess.run(
        [sys.executable, "-c", script, exported, tmp_path / "texts.json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    got, ours = json.loads(done.stdout.splitlines()[-1])
    assert ours == []
    np.testing.assert_allclose(
        got,
        [list(r.probabilities.values()) for r in expected(classifier)],
        rtol=1e-5,
        atol=1e-7,
    )


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
