"""Checkpoints of google-research/albert, read and written."""

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tiny_models import save_tensors as save

from albert_tf.config import ModelConfig, UserError, override
from albert_tf.interchange.google_config import config_beside
from albert_tf.interchange.google_tf1 import (
    find_checkpoint,
    head_of,
    open_weights,
    write_checkpoint,
)
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.weights.names import named_weights
from albert_tf.modeling.weights.stored_weights import assign_weights

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture(scope="module")
def reference():
    with np.load(DATA / "google_tf1_reference.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def weights(reference):
    return {
        name.removeprefix("weight:"): value
        for name, value in reference.items()
        if name.startswith("weight:")
    }


def read_all(prefix):
    weights = open_weights(str(prefix))
    return {name: weights.read(name) for name in weights.shapes}


@pytest.fixture
def checkpoint(tmp_path, reference, weights):
    """Returns the prefix of a checkpoint with the state of training."""
    tensors = dict(weights, global_step=np.int64(125_000))
    for name, value in weights.items():
        tensors[name + "/adam_m"] = np.full_like(value, np.nan)
        tensors[name + "/adam_v"] = np.zeros_like(value)
    save(tmp_path / "model.ckpt-125000", tensors)
    (tmp_path / "albert_config.json").write_text(str(reference["config"]))
    return str(tmp_path / "model.ckpt-125000")


def test_weights_are_read_without_training_state(checkpoint, weights):
    opened = open_weights(checkpoint)
    assert (opened.source, opened.form) == (checkpoint, "google")
    assert list(opened.shapes) == sorted(weights)
    for name, value in weights.items():
        assert opened.shapes[name] == value.shape
        found = opened.read(name)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, value)


def test_the_state_of_an_estimator_is_ignored(tmp_path):
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        variable = v1.get_variable("bert/w", [2, 3])
        step = v1.train.get_or_create_global_step()
        v1.train.AdamOptimizer().minimize(
            tf.reduce_sum(variable), global_step=step
        )
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            prefix = v1.train.Saver().save(
                session, str(tmp_path / "model.ckpt"), global_step=step
            )
    assert len(tf.train.list_variables(prefix)) == 6
    assert find_checkpoint(str(tmp_path)) == prefix
    assert dict(open_weights(prefix).shapes) == {"bert/w": (2, 3)}


def test_training_state_is_ignored(tmp_path):
    value = np.float32([1, 2])
    slots = ("ExponentialMovingAverage", "Momentum", "lamb_m", "adam_v/x")
    slots = (*slots, "adam_v", "Adam_1")
    state = {f"module/bert/w/{slot}": value for slot in slots}
    counters = ("global_step", "current_loss_scale", "bert/beta1_power", "w")
    state |= {name: np.float32(1) for name in counters}
    state["_CHECKPOINTABLE_OBJECT_GRAPH"] = b"\n\0"
    prefix = save(tmp_path / "c", {"module/bert/w": value, **state})
    assert dict(open_weights(prefix).shapes) == {"bert/w": (2,)}
    # Without its variable, a slot is an unknown name, which is reported.
    prefix = save(tmp_path / "d", {"bert/v": value, "bert/w/adam_m": value})
    assert list(open_weights(prefix).shapes) == ["bert/v", "bert/w/adam_m"]


def test_a_checkpoint_of_objects_is_refused(tmp_path):
    prefix = tf.train.Checkpoint(w=tf.Variable([1.0])).write(
        str(tmp_path / "c")
    )
    with pytest.raises(
        UserError, match=r"written by tf\.train\.Checkpoint \(.*w/\.ATTR"
    ):
        open_weights(prefix)


def test_other_names_of_the_same_variables(tmp_path):
    transform = "cls/predictions/transform/"
    known = {
        "module/bert/pooler/dense/bias": "bert/pooler/dense/bias",
        f"{transform}layer_normalization/gamma": f"{transform}LayerNorm/gamma",
        "module/g/layer_normalization_1/gamma": "g/LayerNorm_1/gamma",
        "layer_normalization/gamma": "LayerNorm/gamma",
        "end_logits/LayerNorm/beta": "end_logits/LayerNorm/beta",
    }
    # Unknown names stay, so that they are reported.
    for name in (
        "bert/module/w",
        "bert/layer_normalization_2/gamma",
        "bert/my_layer_normalization/w",
        "bert/w/Momentum",
        "model/global_step",
        "bert/w/adam_max",
    ):
        known[name] = name
    values = {name: np.float32([n]) for n, name in enumerate(known)}
    opened = open_weights(save(tmp_path / "c", values))
    assert sorted(opened.shapes) == sorted(known.values())
    for name, value in values.items():
        assert opened.read(known[name]) == value


@pytest.mark.parametrize(
    ("one", "other"),
    [("g/LayerNorm/beta", "g/layer_normalization/beta"), ("w", "module/w")],
)
def test_two_names_of_one_variable_are_refused(tmp_path, one, other):
    values = {one: np.float32([0]), other: np.float32([0])}
    prefix = save(tmp_path / "c", values)
    with pytest.raises(UserError, match=f"{prefix} holds both ") as caught:
        open_weights(prefix)
    line = str(caught.value)
    assert f" {one} " in line.replace(",", " ")
    assert f" {other} " in line.replace(",", " ")


def test_a_model_made_from_the_files_gives_the_originals_output(
    checkpoint, reference
):
    model = AlbertForPretraining(config_beside(checkpoint))
    assign_weights(named_weights(model), open_weights(checkpoint))
    outputs = model(
        {
            name.removeprefix("input:"): value
            for name, value in reference.items()
            if name.startswith("input:")
        }
    )
    np.testing.assert_allclose(
        outputs["pooled_output"], reference["output:pooled_output"], atol=1e-5
    )


def test_the_configuration_is_that_of_the_folder(checkpoint):
    assert config_beside(checkpoint) == override(
        ModelConfig(),
        {
            "vocab_size": 211,
            "embedding_size": 16,
            "hidden_size": 32,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "max_position_embeddings": 64,
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
        },
    )


def test_a_prefix_without_a_folder_is_in_this_one(checkpoint, monkeypatch):
    path = Path(checkpoint)
    monkeypatch.chdir(path.parent)
    assert config_beside(path.name).vocab_size == 211
    assert find_checkpoint(path.name) == path.name
    assert len(read_all(path.name)) == 32


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
def test_a_damaged_checkpoint_is_refused(tmp_path, weights, suffix):
    prefix = save(tmp_path / "model.ckpt", weights)
    path = Path(f"{prefix}{suffix}")
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[7] ^= 1
    # test_tensor_bundle.py has all other faults.
    for damaged in (b"", data[: len(data) // 2], bytes(flipped)):
        path.write_bytes(damaged)
        with pytest.raises(
            UserError, match=f"^{prefix} is not a readable TensorFlow checkpo"
        ) as caught:
            read_all(prefix)
        assert "\n" not in str(caught.value)


@pytest.fixture
def released(tmp_path):
    """Returns a folder as the released archives have it."""
    folder = tmp_path / "albert[base]"
    folder.mkdir()
    save(folder / "model.ckpt-best", {"bert/w": np.float32(1)})
    for name in ("model.ckpt-best.meta", "30k-clean.model", "30k-clean.vocab"):
        (folder / name).touch()
    (folder / "albert_config.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    "end",
    [
        "",
        "/",
        "/model.ckpt-best",
        "/model.ckpt-best.index",
        "/model.ckpt-best.meta",
        "/model.ckpt-best.data-00000-of-00001",
    ],
)
def test_a_checkpoint_is_found_from_its_folder_and_files(released, end):
    assert find_checkpoint(f"{released}{end}") == f"{released}/model.ckpt-best"


def test_other_files_are_not_found(released, tmp_path):
    (tmp_path / "graph.meta").touch()
    assert find_checkpoint(str(tmp_path)) is None
    assert find_checkpoint(str(tmp_path / "nothing")) is None
    assert find_checkpoint(f"{released}/model.ckpt") is None
    assert find_checkpoint(f"{released}/albert_config.json") is None


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
def test_an_incomplete_checkpoint_is_found_and_refused(released, suffix):
    os.remove(f"{released}/model.ckpt-best{suffix}")
    for path in (str(released), f"{released}/model.ckpt-best"):
        prefix = find_checkpoint(path)
        with pytest.raises(UserError, match=f"best{suffix} is missing"):
            open_weights(prefix)


def test_one_of_several_checkpoints_must_be_named(released):
    save(released / "model.ckpt-7", {"bert/w": np.float32(2)})
    with pytest.raises(
        UserError, match=r"2 checkpoints, model.ckpt-7, model.ckpt-best; name"
    ):
        find_checkpoint(str(released))
    path = f"{released}/model.ckpt-7"
    assert find_checkpoint(path) == path


def test_an_archive_is_refused(tmp_path):
    for name in ("albert_base_v2.tar.gz", "a.tgz", "a.zip"):
        (tmp_path / name).touch()
        with pytest.raises(UserError, match=f"{name} is an archive; unpack it"):
            find_checkpoint(str(tmp_path / name))


@pytest.mark.parametrize(
    ("shapes", "heads"),
    [
        ({"bert/pooler/dense/bias": (8,)}, ()),
        ({"cls/predictions/output_bias": (9,)}, ("masked_lm",)),
        (
            {
                "cls/predictions/output_bias": (9,),
                "cls/seq_relationship/output_bias": (2,),
            },
            ("pretraining",),
        ),
        ({"cls/squad/output_weights": (2, 8)}, ("span",)),
        ({"start_logits/dense/kernel": (8, 1)}, ("answerable_span",)),
        ({"output_weights": (3, 8)}, ("classification",)),
        (
            {"output_weights": (1, 8)},
            ("classification", "regression", "multiple_choice"),
        ),
    ],
)
def test_names_of_variables_determine_the_head(shapes, heads):
    assert head_of(shapes) == heads


def load_by_original(prefix, shapes):
    """Returns the variables that a TensorFlow 1 graph reads, in two ways.

    As the original: `init_from_checkpoint` initialises trainable variables by
    name, and a Saver restores all of the graph's variables.
    """
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        variables = {n: v1.get_variable(n, s) for n, s in shapes.items()}
        stored = {name for name, _ in tf.train.list_variables(prefix)}
        v1.train.init_from_checkpoint(
            prefix, {n: n for n in variables if n in stored}
        )
        step = v1.train.get_or_create_global_step()
        cleared = [v.assign(tf.zeros_like(v)) for v in variables.values()]
        saver = v1.train.Saver()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            initial = session.run(variables)
            session.run(cleared)
            saver.restore(session, prefix)
            return initial, session.run(variables), session.run(step)


def test_the_original_reads_a_written_checkpoint(tmp_path, weights):
    prefix = str(tmp_path / "model.ckpt-best")
    write_checkpoint(prefix, weights)
    assert sorted(os.listdir(tmp_path)) == [
        "checkpoint",
        "model.ckpt-best.data-00000-of-00001",
        "model.ckpt-best.index",
    ]
    assert tf.train.latest_checkpoint(str(tmp_path)) == prefix
    reader = tf.train.load_checkpoint(prefix)
    assert reader.get_variable_to_shape_map() == {
        "global_step": [],
        **{name: list(value.shape) for name, value in weights.items()},
    }
    assert reader.get_tensor("global_step").dtype == np.int64
    shapes = {name: value.shape for name, value in weights.items()}
    initial, restored, step = load_by_original(prefix, shapes)
    assert step == 0
    found = read_all(prefix)
    assert sorted(found) == sorted(weights)
    for name, value in weights.items():
        for theirs in (
            reader.get_tensor(name),
            initial[name],
            restored[name],
            found[name],
        ):
            assert theirs.dtype == np.float32
            np.testing.assert_array_equal(theirs, value)


def test_a_path_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    prefix = f"{tmp_path}/file/model.ckpt"
    with pytest.raises(UserError, match=f"^{prefix} cannot be written: "):
        write_checkpoint(prefix, {"w": np.ones([4])})


def test_a_checkpoint_in_a_bucket(released):
    bucket = f"file://{released}"
    prefix = find_checkpoint(f"{bucket}/")
    assert prefix == f"{bucket}/model.ckpt-best"
    assert find_checkpoint(f"{prefix}.index") == prefix
    assert find_checkpoint(f"{bucket}/model.ckpt") is None
    assert find_checkpoint(f"{bucket}/nowhere/model.ckpt") is None
    here = open_weights(f"{released}/model.ckpt-best")
    there = open_weights(prefix)
    assert (there.source, there.shapes) == (prefix, here.shapes)
    assert there.fingerprint == here.fingerprint
    with pytest.raises(UserError, match="^file://.*_config.json lacks"):
        config_beside(prefix)
    os.truncate(f"{released}/model.ckpt-best.data-00000-of-00001", 1)
    with pytest.raises(UserError, match="^file://.*the file is truncated"):
        open_weights(prefix)
    os.remove(f"{released}/model.ckpt-best.index")
    with pytest.raises(UserError, match="^file://.*index is missing"):
        open_weights(prefix)
