"""google-research/albert: checkpoints, albert_config.json; both ways."""

import dataclasses
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tiny_models import save_tensors as save

from albert_tf.config import ModelConfig, UserError, override
from albert_tf.interchange.google_tf1 import (
    config_beside,
    config_to_json,
    find_checkpoint,
    open_weights,
    read_config,
    write_checkpoint,
)

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture(scope="module")
def reference():
    with np.load(DATA / "google_tf1_reference.npz") as file:
        return {name: file[name] for name in file.files}


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
    checkpoint = tf.train.Checkpoint(w=tf.Variable([1.0]))
    prefix = checkpoint.write(str(tmp_path / "c"))
    with pytest.raises(UserError, match=r"tf\.train\.Checkpoint \(.*w/\.ATTR"):
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


# The last one is of a model that was called "albert", not "bert".
@pytest.mark.parametrize("scope", ["", "module/", "model/towers/", "al"])
def test_the_scope_of_a_model_is_removed(tmp_path, scope):
    value = np.float32([1, 2])
    names = ("bert/embeddings/word_embeddings", "bert/pooler/dense/bias")
    stored = {scope + name: value for name in names}
    stored["optimizer/bert/pooler/dense/bias"] = value
    prefix = save(tmp_path / "c", stored)
    assert sorted(open_weights(prefix).shapes) == [
        *names,
        "optimizer/bert/pooler/dense/bias",
    ]


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


def test_a_checkpoint_is_found_from_its_folder_and_files(released, tmp_path):
    best = f"{released}/model.ckpt-best"
    files = [f"{best}{end}" for end in ("", ".meta", ".data-00000-of-00001")]
    for path in (str(released), f"{released}/", *files):
        assert find_checkpoint(path) == best
    (tmp_path / "graph.meta").touch()
    others = (tmp_path / "nothing", released / "model.ckpt")
    for path in (tmp_path, *others, released / "albert_config.json"):
        assert find_checkpoint(str(path)) is None


def test_a_prefix_without_a_folder_is_in_this_one(released, monkeypatch):
    monkeypatch.chdir(released)
    assert find_checkpoint("model.ckpt-best") == "model.ckpt-best"
    assert open_weights("model.ckpt-best").source == "model.ckpt-best"
    with pytest.raises(UserError, match="^albert_config.json lacks"):
        config_beside("model.ckpt-best")


def test_two_names_of_one_variable_are_refused(tmp_path):
    names = ("g/LayerNorm/beta", "module/g/layer_normalization/beta")
    prefix = save(tmp_path / "c", dict.fromkeys(names, np.float32([0])))
    with pytest.raises(UserError, match=f"both {names[0]} and {names[1]},"):
        open_weights(prefix)


def test_the_scopes_of_two_models_stay(tmp_path):
    names = {f"{scope}/bert/embeddings/word_embeddings" for scope in "ab"}
    prefix = save(tmp_path / "c", dict.fromkeys(names, np.float32([0])))
    assert open_weights(prefix).shapes.keys() == names


def test_an_incomplete_checkpoint_is_found_and_refused(released):
    data = f"{released}/model.ckpt-best.data-00000-of-00001"
    os.remove(data)
    assert find_checkpoint(str(released)) == f"{released}/model.ckpt-best"
    os.rename(f"{released}/model.ckpt-best.index", data)
    prefix = find_checkpoint(str(released))
    with pytest.raises(UserError, match="best.index: No such file"):
        open_weights(prefix)


def test_one_of_several_checkpoints_must_be_named(released):
    save(released / "model.ckpt-7", {"bert/w": np.float32(2)})
    with pytest.raises(UserError, match="model.ckpt-7, model.ckpt-best; name"):
        find_checkpoint(str(released))
    path = f"{released}/model.ckpt-7"
    assert find_checkpoint(path) == path


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


def test_the_original_reads_a_written_checkpoint(tmp_path, reference):
    weights = {
        name.removeprefix("weight:"): value
        for name, value in reference.items()
        if name.startswith("weight:")
    }
    prefix = str(tmp_path / "model.ckpt-best")
    write_checkpoint(prefix, weights)
    assert tf.train.latest_checkpoint(str(tmp_path)) == prefix
    shapes = {name: value.shape for name, value in weights.items()}
    stored = {n: tuple(shape) for n, shape in tf.train.list_variables(prefix)}
    assert stored == {"global_step": (), **shapes}
    initial, restored, step = load_by_original(prefix, shapes)
    assert step == 0
    found = open_weights(prefix)
    assert sorted(found.shapes) == sorted(weights)
    for name, value in weights.items():
        for theirs in (initial[name], restored[name], found.read(name)):
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
    here = open_weights(f"{released}/model.ckpt-best")
    there = open_weights(prefix)
    assert (there.source, there.shapes) == (prefix, here.shapes)
    assert there.fingerprint == here.fingerprint
    with pytest.raises(UserError, match="^file://.*_config.json lacks"):
        config_beside(prefix)
    os.truncate(f"{released}/model.ckpt-best.data-00000-of-00001", 1)
    with pytest.raises(UserError, match="^file://.*the file is truncated"):
        open_weights(prefix)


def write_config(tmp_path, *, without=(), **values):
    """Writes the values beside the architecture of our defaults."""
    path = tmp_path / "albert_config.json"
    config = dataclasses.asdict(ModelConfig())
    names = ARCHITECTURE.difference(without)
    path.write_text(json.dumps({n: config[n] for n in names} | values))
    return str(path)


ARCHITECTURE = {
    *("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers"),
    *("num_attention_heads", "intermediate_size"),
}


NOT_READ = {
    **{"net_structure_type": 0, "layers_to_keep": [], "gap_size": 0},
    **{"num_memory_blocks": 0, "down_scale_factor": 1},
}


def test_keys_that_nothing_reads_are_ignored(tmp_path):
    path = write_config(
        tmp_path,
        **NOT_READ,
        num_hidden_groups=2,
        inner_group_num=3,
        layer_norm_eps=1e-12,
    )
    assert read_config(path) == override(
        ModelConfig(), {"num_hidden_groups": 2, "inner_group_num": 3}
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"hiden_size": 8, "b\n" * 99: 1},
            r": google.* has no setting 'b\\n.*\.\.\., 'hiden_size'; it has v",
        ),
        # Our settings are within our key only.
        ({"sharing": "all"}, ": google.* has no setting 'sharing'"),
        ({"layer_norm_eps": 1e-5}, ": layer_norm_eps=1e-05 is not one of 1e-1"),
        ({"hidden_act": ["gelu"]}, r": hidden_act=\['gelu'\] is not one of ge"),
        ({"hidden_size": 770}, ": hidden_size=770 is not a multiple of"),
        ({"albert_tf": None}, ": expected albert_tf to be an object, got None"),
        ({"albert_tf": {"hidden_size": 8}}, ": albert_tf has no setting 'hid"),
        ({"without": ["hidden_size"]}, " lacks hidden_size;"),
    ],
)
def test_a_faulty_configuration(tmp_path, values, message):
    path = write_config(tmp_path, **values)
    with pytest.raises(UserError, match=f"^{re.escape(path)}{message}"):
        read_config(path)


def test_a_missing_configuration(tmp_path):
    with pytest.raises(UserError, match=r"albert_config\.json is missing"):
        config_beside(str(tmp_path / "model.ckpt"))


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({"num_hidden_groups": 3, "inner_group_num": 2}, 3),
        ({"sharing": "attention", "num_hidden_groups": 2}, 12),
        ({"sharing": "none", "classifier_dropout_prob": 0.25}, 12),
        ({"num_hidden_layers": 7, "hidden_act": "relu"}, 1),
    ],
)
def test_a_configuration_there_and_back(tmp_path, reference, changes, groups):
    config = override(ModelConfig(), changes)
    values = config_to_json(config)
    theirs = json.loads(str(reference["config"])).keys()
    assert values.keys() == theirs - NOT_READ.keys() | {"albert_tf"}
    # The groups of the checkpoint, which the original counts.
    assert values["num_hidden_groups"] == groups
    assert read_config(write_config(tmp_path, **values)) == config


@pytest.mark.parametrize(
    "changes", [{"hidden_act": "gelu_exact"}, {"layer_norm_eps": 1e-5}]
)
def test_settings_that_the_original_lacks_are_not_written(changes):
    (name,) = changes
    with pytest.raises(UserError, match=f"^google-research/albert: {name}="):
        config_to_json(override(ModelConfig(), changes))
