"""Checkpoints in the original's form, written here and read back."""

import dataclasses
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import ModelConfig, UserError, override
from albert_tf.interchange.google_tf1 import (
    config_beside,
    config_to_json,
    find_checkpoint,
    head_of,
    open_weights,
    read_config,
    write_checkpoint,
)
from albert_tf.io import files
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.weights.names import named_weights
from albert_tf.modeling.weights.stored_weights import assign_weights

ARCHITECTURE = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
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


def save(prefix, tensors):
    """Writes tensors by name, without the writer that is tested."""
    names = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(tensors[name]) for name in names],
    )
    return str(prefix)


def read_all(prefix):
    weights = open_weights(str(prefix))
    return {name: weights.read(name) for name in weights.shapes}


@pytest.fixture
def checkpoint(tmp_path, reference, weights):
    """Returns the prefix of a checkpoint with all that training leaves."""
    tensors = dict(weights, global_step=np.int64(125_000))
    for name, value in weights.items():
        tensors[name + "/adam_m"] = np.full_like(value, np.nan)
        tensors[name + "/adam_v"] = np.zeros_like(value)
    save(tmp_path / "model.ckpt-125000", tensors)
    (tmp_path / "albert_config.json").write_text(str(reference["config"]))
    return str(tmp_path / "model.ckpt-125000")


def test_weights_are_read_without_slots_and_counters(checkpoint, weights):
    opened = open_weights(checkpoint)
    assert (opened.source, opened.form) == (checkpoint, "google")
    assert list(opened.shapes) == sorted(weights)
    for name, value in weights.items():
        assert opened.shapes[name] == value.shape
        found = opened.read(name)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, value)


def test_what_an_estimator_saves_beside_weights_is_left_out(tmp_path):
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


def test_other_trainings_state_is_left_out(tmp_path):
    value = np.float32([1, 2])
    slots = ("ExponentialMovingAverage", "Momentum", "lamb_m", "adam_v/x")
    slots = (*slots, "adam_v", "Adam_1")
    state = {f"module/bert/w/{slot}": value for slot in slots}
    counters = ("global_step", "current_loss_scale", "bert/beta1_power", "w")
    state |= {name: np.float32(1) for name in counters}
    prefix = save(tmp_path / "c", {"module/bert/w": value, **state})
    assert dict(open_weights(prefix).shapes) == {"bert/w": (2,)}
    # Without its variable, a slot is a name of nobody.
    prefix = save(tmp_path / "d", {"bert/v": value, "bert/w/adam_m": value})
    assert list(open_weights(prefix).shapes) == ["bert/v", "bert/w/adam_m"]


def test_the_objects_beside_variables_are_left_out(tmp_path):
    prefix = save(
        tmp_path / "c",
        {"_CHECKPOINTABLE_OBJECT_GRAPH": b"\n\0", "bert/w": np.float32([1])},
    )
    assert list(open_weights(prefix).shapes) == ["bert/w"]


def test_a_checkpoint_of_objects_is_named(tmp_path):
    prefix = tf.train.Checkpoint(w=tf.Variable([1.0])).write(
        str(tmp_path / "c")
    )
    with pytest.raises(
        UserError, match=r"written by tf\.train\.Checkpoint \(.*w/\.ATTR"
    ):
        open_weights(prefix)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("module/bert/pooler/dense/bias", "bert/pooler/dense/bias"),
        (
            "bert/embeddings/layer_normalization/beta",
            "bert/embeddings/LayerNorm/beta",
        ),
        ("module/g/layer_normalization_1/gamma", "g/LayerNorm_1/gamma"),
        (
            "cls/predictions/transform/layer_normalization/gamma",
            "cls/predictions/transform/LayerNorm/gamma",
        ),
        ("layer_normalization/gamma", "LayerNorm/gamma"),
        ("end_logits/LayerNorm/beta", "end_logits/LayerNorm/beta"),
        # Names of nobody stay, so that they are reported.
        ("bert/module/w", "bert/module/w"),
        (
            "bert/layer_normalization_2/gamma",
            "bert/layer_normalization_2/gamma",
        ),
        ("bert/my_layer_normalization/w", "bert/my_layer_normalization/w"),
        ("bert/w/Momentum", "bert/w/Momentum"),
        ("model/global_step", "model/global_step"),
        ("bert/w/adam_max", "bert/w/adam_max"),
    ],
)
def test_other_names_of_the_same_variables(tmp_path, name, known):
    values = {name: np.float32([3]), "b": np.float32([0, 0])}
    opened = open_weights(save(tmp_path / "c", values))
    assert dict(opened.shapes) == {known: (1,), "b": (2,)}
    assert opened.read(known) == [3]


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


def test_nothing_is_read_that_is_not_asked_for(checkpoint):
    opened = open_weights(checkpoint)
    os.remove(checkpoint + ".data-00000-of-00001")
    assert len(opened.shapes) == 32
    with pytest.raises(UserError, match="No such file"):
        opened.read("bert/pooler/dense/bias")


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


def test_a_model_of_another_size_refuses_the_weights(checkpoint):
    config = override(config_beside(checkpoint), {"hidden_size": 64})
    with pytest.raises(UserError, match="pooler/dense/kernel has shape"):
        assign_weights(
            named_weights(AlbertForPretraining(config)),
            open_weights(checkpoint),
        )


def test_the_configuration_is_the_files(checkpoint):
    config = config_beside(checkpoint)
    assert config == override(
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


def write_config(tmp_path, **values):
    """Writes what is given beside the architecture of our defaults."""
    path = tmp_path / "albert_config.json"
    config = dataclasses.asdict(ModelConfig())
    said = {name: config[name] for name in ARCHITECTURE}
    path.write_text(json.dumps(said | values))
    return str(path)


def test_keys_that_nothing_reads_are_passed_over(tmp_path):
    path = write_config(
        tmp_path,
        net_structure_type=0,
        layers_to_keep=[],
        gap_size=0,
        num_memory_blocks=0,
        down_scale_factor=1,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
        num_hidden_groups=2,
        inner_group_num=3,
        layer_norm_eps=1e-12,
    )
    assert read_config(path) == override(
        ModelConfig(), {"num_hidden_groups": 2, "inner_group_num": 3}
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"hiden_size": 8, "b\n" * 99: 1},
            r"google-research/albert has no setting 'b\\n.*\.\.\., "
            "'hiden_size'; it has vocab_size, ",
        ),
        # What is ours alone stands within our key, if anywhere.
        ({"always_project_embeddings": True}, "google-research/.* has no"),
        ({"sharing": "all"}, "google-research/albert has no setting 'sharing'"),
        ({"classifier_dropout_prob": 0.1}, ".* has no setting 'classifier_dr"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05 must be 1e-12, which"),
        ({"layer_norm_eps": "0"}, "layer_norm_eps='0' must be 1e-12, which"),
        ({"hidden_act": "gelu_exact"}, "hidden_act='gelu_exact' is not one of"),
        ({"hidden_act": ["gelu"]}, r"hidden_act=\['gelu'\] is not one of gelu"),
        ({"hidden_size": "8"}, "hidden_size='8' is of type str; expected int"),
        ({"hidden_act": "swish"}, "hidden_act='swish' is not one of gelu"),
        ({"hidden_size": 770}, "hidden_size=770 is not a multiple of"),
        (
            {"hidden_dropout_prob": "0"},
            "hidden_dropout_prob='0' is of type",
        ),
    ],
)
def test_a_faulty_configuration_is_named(tmp_path, values, text):
    path = write_config(tmp_path, **values)
    with pytest.raises(UserError, match=f"^{re.escape(path)}: {text}"):
        read_config(path)


@pytest.mark.parametrize(
    "absent", [ARCHITECTURE, *([name] for name in ARCHITECTURE)]
)
def test_what_decides_the_architecture_is_never_a_default(tmp_path, absent):
    path = write_config(tmp_path)
    values = json.loads(Path(path).read_text())
    values = {n: value for n, value in values.items() if n not in absent}
    Path(path).write_text(json.dumps(values))
    with pytest.raises(
        UserError, match=f"^{path} lacks {' and '.join(absent)}; it must say"
    ):
        read_config(path)


def test_a_missing_configuration_is_named(tmp_path):
    with pytest.raises(UserError, match=r"albert_config\.json is missing"):
        config_beside(str(tmp_path / "model.ckpt"))


def flip(data, position):
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".index", lambda data: b""),
        (".index", lambda data: data[:-1]),
        (".index", lambda data: data[: len(data) // 2]),
        (".index", lambda data: flip(data, len(data) // 2)),
        (".index", lambda data: flip(data, len(data) - 1)),
        (".index", lambda data: b"not a checkpoint " * 50),
        (".data-00000-of-00001", lambda data: b""),
        (".data-00000-of-00001", lambda data: data[: len(data) // 2]),
        (".data-00000-of-00001", lambda data: flip(data, 7)),
        (".data-00000-of-00001", None),
        (".index", None),
    ],
)
def test_a_damaged_checkpoint_is_refused(tmp_path, weights, suffix, damage):
    prefix = tmp_path / "model.ckpt"
    save(prefix, weights)
    path = Path(f"{prefix}{suffix}")
    data = path.read_bytes()
    path.unlink()
    if damage:
        path.write_bytes(damage(data))
    with pytest.raises(
        UserError, match="is not a readable TensorFlow checkpoint"
    ) as caught:
        read_all(prefix)
    assert str(caught.value).startswith(str(prefix))
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


def test_what_is_no_checkpoint_is_not_found(released, tmp_path):
    (tmp_path / "graph.meta").touch()
    assert find_checkpoint(str(tmp_path)) is None
    assert find_checkpoint(str(tmp_path / "nothing")) is None
    assert find_checkpoint(f"{released}/model.ckpt") is None
    assert find_checkpoint(f"{released}/albert_config.json") is None


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
def test_half_a_checkpoint_is_found_and_refused(released, suffix):
    os.remove(f"{released}/model.ckpt-best{suffix}")
    for path in (str(released), f"{released}/model.ckpt-best"):
        prefix = find_checkpoint(path)
        with pytest.raises(UserError, match=f"best{suffix} is missing"):
            open_weights(prefix)


def test_one_of_several_checkpoints_must_be_named(released):
    save(released / "model.ckpt-7", {"bert/w": np.float32(2)})
    with pytest.raises(
        UserError, match=r"holds 2 checkpoints; name one of them"
    ) as caught:
        find_checkpoint(str(released))
    assert "model.ckpt-7, model.ckpt-best" in str(caught.value)
    path = f"{released}/model.ckpt-7"
    assert find_checkpoint(path) == path


@pytest.mark.parametrize("name", ["albert_base_v2.tar.gz", "a.tgz", "a.zip"])
def test_an_archive_is_to_be_unpacked(tmp_path, name):
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
def test_names_tell_the_head(shapes, heads):
    assert head_of(shapes) == heads


def load_by_original(prefix, shapes):
    """Returns what a TensorFlow 1 graph of these variables reads, two ways.

    As the original does: `init_from_checkpoint` gives each trainable variable
    the value of its name, and a Saver restores all of the graph's variables.
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


def test_what_is_written_the_original_reads(tmp_path, weights):
    prefix = str(tmp_path / "new" / "model.ckpt-best")
    write_checkpoint(prefix, weights)
    assert sorted(os.listdir(tmp_path / "new")) == [
        "checkpoint",
        "model.ckpt-best.data-00000-of-00001",
        "model.ckpt-best.index",
    ]
    assert tf.train.latest_checkpoint(str(tmp_path / "new")) == prefix
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


def test_a_checkpoint_takes_the_place_of_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        write_checkpoint("model.ckpt", {"w": np.full([4], number, np.float64)})
    assert read_all("model.ckpt")["w"].tolist() == [2] * 4
    reader = tf.train.load_checkpoint("model.ckpt")
    assert reader.get_variable_to_dtype_map()["w"] == tf.float32
    assert tf.train.latest_checkpoint(".") == "./model.ckpt"
    assert len(os.listdir(".")) == 3


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_what_was_interrupted_does_not_look_whole(tmp_path, monkeypatch, calls):
    prefix = str(tmp_path / "model.ckpt")
    write_checkpoint(prefix, {"w": np.zeros([4])})
    order = []

    def replace(source, target, move=os.replace):
        order.append(os.path.basename(target))
        if len(order) > calls:
            raise OSError("killed")
        move(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(UserError, match=f"^{prefix} cannot be written: kill"):
        write_checkpoint(prefix, {"w": np.ones([4])})
    if calls < 2:
        with pytest.raises(UserError, match="index is missing"):
            open_weights(prefix)
    else:
        assert read_all(prefix)["w"].tolist() == [1] * 4
    assert not [n for n in os.listdir(tmp_path) if n.startswith(".")]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    prefix = f"{tmp_path}/file/model.ckpt"
    with pytest.raises(UserError, match=f"^{prefix} cannot be written: "):
        write_checkpoint(prefix, {"w": np.ones([4])})


# The constructor of the original's AlbertConfig takes these.
THEIR_SETTINGS = [
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_hidden_groups",
    "num_attention_heads",
    "intermediate_size",
    "inner_group_num",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
]
CONFIGS = [
    {"hidden_act": "relu", "embedding_size": 16, "initializer_range": 0.1},
    {"sharing": "all", "num_hidden_groups": 3, "inner_group_num": 2},
    {"sharing": "attention", "num_hidden_groups": 2},
    {"sharing": "none", "classifier_dropout_prob": 0.25},
    {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2},
    {"vocab_size": 99, "type_vocab_size": 3, "max_position_embeddings": 64},
    {"hidden_size": 36, "intermediate_size": 5, "num_hidden_layers": 7},
]


@pytest.mark.parametrize("changes", CONFIGS)
def test_a_configuration_comes_back(tmp_path, changes):
    config = override(ModelConfig(), changes)
    values = config_to_json(config, file_groups=5)
    assert sorted(values) == sorted([*THEIR_SETTINGS, "albert_tf"])
    expected = dataclasses.asdict(config) | {"num_hidden_groups": 5}
    for name in THEIR_SETTINGS:
        assert values[name] == expected[name]
    assert read_config(write_config(tmp_path, **values)) == config


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hidden_act": "gelu_exact"}, "hidden_act='gelu_exact' has no name"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05 cannot be said"),
    ],
)
def test_what_the_original_cannot_say_is_not_written(changes, text):
    with pytest.raises(UserError, match=text):
        config_to_json(override(ModelConfig(), changes), file_groups=1)


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ([1], "albert_tf is of type list; an object is needed"),
        (None, "albert_tf is of type NoneType; an object is needed"),
        ({"sharin": "all"}, "albert_tf has no setting 'sharin'; it has shar"),
        ({"hidden_size": 8}, "albert_tf has no setting 'hidden_size'"),
        ({"sharing": "most"}, "sharing='most' is not one of all, att"),
        ({"num_hidden_groups": "2"}, "num_hidden_groups='2' is of type str"),
        ({"num_hidden_groups": 13}, "num_hidden_groups=13 exceeds"),
        ({"classifier_dropout_prob": 2}, "classifier_dropout_prob=2.0 is abo"),
    ],
)
def test_a_faulty_key_of_ours_is_named(tmp_path, own, text):
    path = write_config(tmp_path, albert_tf=own)
    with pytest.raises(UserError, match=f"^{re.escape(path)}: {text}"):
        read_config(path)


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
    with pytest.raises(UserError, match="^file://.*the file was cut"):
        open_weights(prefix)
    os.remove(f"{released}/model.ckpt-best.index")
    with pytest.raises(UserError, match="^file://.*index is missing"):
        open_weights(prefix)


def test_a_checkpoint_is_written_to_a_bucket(tmp_path):
    prefix = f"file://{tmp_path}/released/model.ckpt"
    for number in (1, 2):
        write_checkpoint(prefix, {"w": np.full([4], number, np.float64)})
    assert read_all(prefix)["w"].tolist() == [2] * 4
    assert files.listdir(f"file://{tmp_path}/released") == [
        "checkpoint",
        "model.ckpt.data-00000-of-00001",
        "model.ckpt.index",
    ]
    values = tf.train.load_checkpoint(prefix)
    assert values.get_tensor("w").tolist() == [2] * 4
    with pytest.raises(UserError, match="^nosuch://a/b cannot be written: "):
        write_checkpoint("nosuch://a/b", {"w": np.ones([4])})
