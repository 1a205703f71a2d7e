"""Checkpoints in the original's form, written here and read back."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import ModelConfig, UserError, override
from albert_tf.interchange.google_tf1 import (
    config_beside,
    is_checkpoint,
    read_config,
    read_weights,
)
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.weight_names import assign_weights, named_weights

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
    """Writes tensors by name, as TensorFlow 1's Saver does."""
    names = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(tensors[name]) for name in names],
    )


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


def test_a_checkpoint_is_known_by_its_prefix(checkpoint, tmp_path):
    assert is_checkpoint(checkpoint)
    assert not is_checkpoint(checkpoint + ".index")
    assert not is_checkpoint(str(tmp_path))
    assert not is_checkpoint(str(tmp_path / "model.ckpt"))


def test_weights_are_read_without_slots_and_counters(checkpoint, weights):
    found = read_weights(checkpoint)
    assert list(found) == sorted(weights)
    for name, value in weights.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], value)


def test_a_model_made_from_the_files_gives_the_originals_output(
    checkpoint, reference
):
    model = AlbertForPretraining(config_beside(checkpoint))
    assign_weights(
        named_weights(model),
        read_weights(checkpoint),
        source=checkpoint,
        form="google",
    )
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
            read_weights(checkpoint),
            source=checkpoint,
            form="google",
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
    assert is_checkpoint(path.name)
    assert len(read_weights(path.name)) == 32


def write_config(tmp_path, **values):
    path = tmp_path / "albert_config.json"
    path.write_text(json.dumps(values))
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
    )
    assert read_config(path) == override(
        ModelConfig(), {"num_hidden_groups": 2, "inner_group_num": 3}
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"hiden_size": 8}, "'hiden_size' is not a setting; did you mean hid"),
        ({"hidden_size": "8"}, "hidden_size='8' is of type str; int is needed"),
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


def test_a_missing_configuration_is_named(tmp_path):
    with pytest.raises(UserError, match=r"albert_config\.json: No such file"):
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
        read_weights(str(prefix))
    assert str(caught.value).startswith(str(prefix))
    assert "\n" not in str(caught.value)
