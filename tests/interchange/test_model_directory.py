"""Model directories: there and back, and what is refused."""

import json
import os
import pathlib

import keras
import numpy as np
import pytest
import safetensors.numpy

from albert_tf.config import ModelConfig, UserError, override
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    initialize,
    load_model_directory,
    recover_directory,
    replacing_directory,
    save_model_directory,
)
from albert_tf.io import files
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
)

SMALL = ModelConfig(
    vocab_size=200,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=24,
)


NARROW = {"hidden_size": 8}


def randomize(model, seed=1):
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    return model


def features():
    rng = np.random.default_rng(3)
    return {
        "input_ids": rng.integers(5, 200, (2, 9)).astype("int32"),
        "input_mask": np.ones((2, 9), "int32"),
        "segment_ids": np.zeros((2, 9), "int32"),
        "masked_lm_positions": np.array([[1, 2], [3, 8]], "int32"),
    }


def weights_file(directory):
    return os.path.join(directory, "model.safetensors")


@pytest.fixture
def pretrained_dir(tmp_path, tiny_tokenizer):
    directory = str(tmp_path / "pretrained")
    save_model_directory(
        directory,
        randomize(AlbertForPretraining(SMALL)),
        tiny_tokenizer,
        max_seq_length=20,
    )
    return directory


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sharing": "attention"},
        {"sharing": "ffn", "num_hidden_groups": 2},
        {"sharing": "none"},
        {"num_hidden_groups": 2, "inner_group_num": 2},
        {"embedding_size": 16},
        {"hidden_act": "gelu_exact", "hidden_dropout_prob": 0.2},
    ],
)
def test_there_and_back(tmp_path, tiny_tokenizer, changes):
    config = override(SMALL, changes)
    model = randomize(AlbertForPretraining(config))
    directory = str(tmp_path / "model")
    save_model_directory(directory, model, tiny_tokenizer, max_seq_length=20)
    loaded = load_model_directory(directory)
    assert loaded.model.config == config
    assert loaded.max_seq_length == 20
    assert loaded.labels is None
    assert loaded.tokenizer.fingerprint == tiny_tokenizer.fingerprint
    for ours, theirs in zip(
        model.trainable_variables,
        loaded.model.trainable_variables,
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)


def test_a_classifier_there_and_back(tmp_path, tiny_tokenizer):
    labels = ["good", "bad", "ugly"]
    model = randomize(AlbertForClassification(SMALL, labels=labels))
    directory = str(tmp_path / "model")
    save_model_directory(directory, model, tiny_tokenizer, max_seq_length=20)
    loaded = load_model_directory(directory)
    assert loaded.labels == labels
    np.testing.assert_array_equal(
        loaded.model(features())["logits"], model(features())["logits"]
    )
    values = json.loads((tmp_path / "model/config.json").read_text())
    assert values["id2label"] == {"0": "good", "1": "bad", "2": "ugly"}


def test_files_of_the_directory(pretrained_dir):
    assert sorted(os.listdir(pretrained_dir)) == [
        "config.json",
        "model.safetensors",
        "spiece.model",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    with open(os.path.join(pretrained_dir, "config.json")) as file:
        values = json.load(file)
    # Google's gelu is what Hugging Face calls gelu_new.
    assert values["hidden_act"] == "gelu_new"
    assert values["architectures"] == ["AlbertForPreTraining"]
    assert values["model_type"] == "albert"
    arrays = safetensors.numpy.load_file(weights_file(pretrained_dir))
    prefix = "albert.encoder.albert_layer_groups.0.albert_layers.0."
    assert arrays[prefix + "ffn.weight"].shape == (32, 16)
    assert arrays["sop_classifier.classifier.weight"].shape == (2, 16)
    assert "predictions.decoder.weight" not in arrays


def test_modes_that_share_a_part_are_written_layer_by_layer(
    tmp_path, tiny_tokenizer
):
    model = randomize(AlbertForPretraining(override(SMALL, {"sharing": "ffn"})))
    directory = str(tmp_path / "model")
    save_model_directory(directory, model, tiny_tokenizer, max_seq_length=20)
    arrays = safetensors.numpy.load_file(weights_file(directory))
    name = "albert.encoder.albert_layer_groups.{}.albert_layers.0.{}.weight"
    ffn, query = (
        [arrays[name.format(group, part)] for group in range(3)]
        for part in ("ffn", "attention.query")
    )
    assert (ffn[0] == ffn[2]).all()
    assert (query[0] != query[2]).any()
    values = json.loads((tmp_path / "model/config.json").read_text())
    assert values["num_hidden_groups"] == 3
    # A copy that has been changed is no longer shared: refused by name.
    arrays[name.format(1, "ffn")] = arrays[name.format(1, "ffn")] + 1
    safetensors.numpy.save_file(arrays, weights_file(directory))
    with pytest.raises(UserError, match="groups.1.*should equal.*groups.0"):
        load_model_directory(directory)


def edited(directory, **changes):
    arrays = safetensors.numpy.load_file(weights_file(directory))
    for name, value in changes.items():
        name = name.replace("__", ".")
        if value is None:
            del arrays[name]
        else:
            arrays[name] = np.asarray(value, np.float32)
    safetensors.numpy.save_file(arrays, weights_file(directory))


def cut(directory):
    os.truncate(weights_file(directory), 1000)


def rewrite_config(directory, change):
    path = os.path.join(directory, "config.json")
    with open(path) as file:
        values = json.load(file)
    change(values)
    with open(path, "w") as file:
        json.dump(values, file)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda d: edited(d, predictions__bias=None), "missing: predictions"),
        (
            lambda d: edited(d, predictions__bias=np.zeros(3)),
            r"predictions.bias has shape \[3\].*\[200\]",
        ),
        (
            lambda d: edited(d, predictions__bias=np.full(200, np.nan)),
            "predictions.bias holds NaN",
        ),
        (lambda d: edited(d, extra=[1.0]), "unexpected: .*extra"),
        (
            lambda d: edited(
                d, predictions__decoder__weight=np.zeros((200, 8))
            ),
            "decoder.weight differs from albert.embeddings",
        ),
        (cut, "not a readable safetensors file"),
        (lambda d: os.remove(weights_file(d)), "model.safetensors is missing"),
        (
            lambda d: rewrite_config(d, lambda v: v.update(model_type="bert")),
            "model_type is 'bert'",
        ),
        (
            lambda d: rewrite_config(d, lambda v: v.update(vocab_size=300)),
            "tokenizer has 200 pieces.*vocab_size=300",
        ),
        (
            lambda d: rewrite_config(
                d,
                lambda v: v.update(architectures=["BertModel"], albert_tf={}),
            ),
            r"architectures is \['BertModel'\]; one of AlbertModel, Albert",
        ),
        (
            lambda d: rewrite_config(d, lambda v: v.update(hidden_size="big")),
            "hidden_size='big' is of type str",
        ),
        (
            lambda d: rewrite_config(d, lambda v: v.update(albert_tf=3)),
            "albert_tf=3 is not an object",
        ),
        (
            lambda d: rewrite_config(
                d, lambda v: v["albert_tf"].update(max_seq_length=99)
            ),
            "max_seq_length=99 must be",
        ),
        (
            lambda d: rewrite_config(d, lambda v: v.update(hidden_act=["x"])),
            "hidden_act=.* is not one of",
        ),
        (
            lambda d: rewrite_config(
                d,
                lambda v: v.update(
                    architectures=["AlbertForSequenceClassification"],
                    albert_tf={},
                    id2label={"0": "a", "1": "a"},
                ),
            ),
            "id2label=.* must give the classes",
        ),
        (lambda d: os.remove(d + "/config.json"), "not a model directory"),
        (
            lambda d: [
                os.remove(f"{d}/{name}")
                for name in ("spiece.model", "tokenizer.json")
            ],
            "has no tokenizer, none of",
        ),
    ],
)
def test_mistakes(pretrained_dir, damage, said):
    damage(pretrained_dir)
    with pytest.raises(UserError, match=said) as raised:
        load_model_directory(pretrained_dir)
    assert "\n" not in str(raised.value)


def test_a_repeated_name_in_the_weights_is_refused(pretrained_dir):
    header = (
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    )
    content = len(header).to_bytes(8, "little") + header + b"\0" * 4
    with open(weights_file(pretrained_dir), "wb") as file:
        file.write(content)
    with pytest.raises(UserError, match="a name appears twice"):
        load_model_directory(pretrained_dir)


def test_initialize_takes_the_encoder_and_leaves_other_heads(pretrained_dir):
    source = load_model_directory(pretrained_dir).model
    model = randomize(AlbertForClassification(SMALL, 4), seed=9)
    head = np.array(model.classification.classifier.kernel)
    line = initialize(model, find_initial_weights(pretrained_dir))
    for ours, theirs in zip(
        model.encoder.trainable_variables,
        source.encoder.trainable_variables,
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)
    np.testing.assert_array_equal(model.classification.classifier.kernel, head)
    assert "model directory" in line
    assert "new: albert/classification/classifier/bias, albert/cla" in line
    assert "not needed: predictions.LayerNorm.bias" in line


def test_initialize_refuses_an_encoder_that_does_not_fit(pretrained_dir):
    weights = find_initial_weights(pretrained_dir)
    deeper = override(SMALL, {"num_hidden_groups": 3})
    with pytest.raises(UserError, match="missing: albert.*groups.1"):
        initialize(AlbertForPretraining(deeper), weights)
    narrow = override(SMALL, {"num_hidden_groups": 1, "embedding_size": 16})
    with pytest.raises(UserError, match="unexpected: .*mapping_in"):
        initialize(AlbertForPretraining(narrow), weights)


def test_what_is_no_source_of_weights(tmp_path):
    with pytest.raises(UserError, match="nowhere does not exist"):
        find_initial_weights(str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="neither a model directory"):
        find_initial_weights(str(tmp_path))


def test_a_failed_save_keeps_what_was_there(tmp_path):
    target = str(tmp_path / "model")
    with replacing_directory(target) as place:
        pathlib.Path(place, "a").write_text("good")
    with pytest.raises(ZeroDivisionError), replacing_directory(target):
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["model"]
    assert os.listdir(target) == ["a"]


def test_only_files_of_a_model_are_replaced(tmp_path):
    for name in ("model", "model.old", "model.tmp"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep/notes").write_text("mine")
    (tmp_path / "model/vocab.txt").write_text("of another tokenizer")
    (tmp_path / "model/config.json").write_text("old")
    with replacing_directory(str(tmp_path / "model")) as place:
        pathlib.Path(place, "config.json").write_text("new")
    left = {
        str(path.relative_to(tmp_path)): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert left == {
        "model/config.json": "new",
        "model/deep/notes": "mine",
        "model.old/deep/notes": "mine",
        "model.tmp/deep/notes": "mine",
    }
    assert len(os.listdir(tmp_path)) == 3


@pytest.mark.parametrize("renamed", [False, True])
def test_a_directory_is_recovered_after_a_kill(tmp_path, renamed):
    """Killed before or between the two renames."""
    half = tmp_path / "model.writing-0123456789ab"
    half.mkdir()
    (half / "config.json").write_text("half")
    (tmp_path / "model.writing-notes").mkdir()
    old = tmp_path / (f"{half.name}.old" if renamed else "model")
    old.mkdir()
    (old / "config.json").write_text("old")
    recover_directory(str(tmp_path / "model"))
    assert sorted(os.listdir(tmp_path)) == ["model", "model.writing-notes"]
    assert (tmp_path / "model/config.json").read_text() == "old"


def test_what_transformers_leaves_out_or_adds(tmp_path, tiny_tokenizer):
    """Two labels without names; position numbers among the weights."""
    directory = str(tmp_path / "model")
    model = randomize(AlbertForClassification(SMALL, labels=["a", "b"]))
    save_model_directory(directory, model, tiny_tokenizer, max_seq_length=20)
    rewrite_config(directory, lambda v: [v.pop("id2label"), v.pop("albert_tf")])
    edited(directory, albert__embeddings__position_ids=np.arange(24)[None])
    loaded = load_model_directory(directory)
    assert loaded.labels == ["LABEL_0", "LABEL_1"]
    assert loaded.max_seq_length == 24


def test_a_run_directory_stands_for_its_model(tmp_path, pretrained_dir):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "config.json").write_text('{"job": "pretrain"}')
    with pytest.raises(UserError, match="model_type is None"):
        load_model_directory(str(run_dir))
    os.rename(pretrained_dir, run_dir / "model")
    assert load_model_directory(str(run_dir)).max_seq_length == 20


def test_a_pretrained_model_with_label_names_is_no_classifier(pretrained_dir):
    rewrite_config(pretrained_dir, lambda v: v.update(id2label={"0": "a"}))
    assert load_model_directory(pretrained_dir).labels is None


def test_a_head_of_another_task_is_not_taken(tmp_path, tiny_tokenizer):
    directory = str(tmp_path / "model")
    model = randomize(AlbertForClassification(SMALL, 3))
    save_model_directory(directory, model, tiny_tokenizer, max_seq_length=20)
    other = AlbertForClassification(SMALL, 3)
    fresh = np.array(other.classification.classifier.kernel)
    initialize(other, find_initial_weights(directory))
    np.testing.assert_array_equal(other.classification.classifier.kernel, fresh)
    initialize(
        AlbertForClassification(SMALL, 5), find_initial_weights(directory)
    )


def test_bfloat16_model_is_saved_in_full_precision(tmp_path, tiny_tokenizer):
    model = AlbertForPretraining(SMALL, dtype="mixed_bfloat16")
    assert (
        keras.backend.standardize_dtype(model.encoder.pooler.kernel.dtype)
        == "float32"
    )
    directory = str(tmp_path / "model")
    save_model_directory(directory, model, tiny_tokenizer, max_seq_length=20)
    arrays = safetensors.numpy.load_file(weights_file(directory))
    assert {value.dtype for value in arrays.values()} == {np.dtype("float32")}


@pytest.fixture
def bucket(request):
    """A directory in a bucket, for which TensorFlow's `ram://` stands."""
    return f"ram://{request.node.name}/run"


def test_a_model_directory_in_a_bucket(bucket, tmp_path, tiny_tokenizer):
    model = randomize(AlbertForPretraining(SMALL))
    for directory in (f"{bucket}/model", str(tmp_path)):
        save_model_directory(
            directory, model, tiny_tokenizer, max_seq_length=20
        )
    assert files.listdir(f"{bucket}/model") == sorted(os.listdir(tmp_path))
    for directory in (bucket, f"{bucket}/model"):
        loaded = load_model_directory(directory)
        assert loaded.tokenizer.fingerprint == tiny_tokenizer.fingerprint
        assert (loaded.model.config, loaded.max_seq_length) == (SMALL, 20)
        for ours, theirs in zip(
            model.trainable_variables,
            loaded.model.trainable_variables,
            strict=True,
        ):
            np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)
    found = find_initial_weights(bucket)
    assert found.kind == "run directory"
    assert found.directory == f"{bucket}/model"
    assert found.fingerprint == find_initial_weights(str(tmp_path)).fingerprint
    other = AlbertForPretraining(SMALL)
    line = initialize(other, found)
    assert f"from the run directory {bucket}/model/model.safetensors" in line
    np.testing.assert_array_equal(
        other.encoder.pooler.kernel, model.encoder.pooler.kernel
    )


def test_a_model_takes_anothers_place_in_a_bucket(bucket, tiny_tokenizer):
    for config, length in ((SMALL, 20), (override(SMALL, NARROW), 12)):
        files.makedirs(bucket)
        files.write(f"{bucket}/vocab.txt", b"of another tokenizer")
        files.write(f"{bucket}/notes.txt", b"mine")
        model = randomize(AlbertForPretraining(config))
        save_model_directory(
            bucket, model, tiny_tokenizer, max_seq_length=length
        )
    loaded = load_model_directory(bucket)
    assert (loaded.model.config, loaded.max_seq_length) == (config, 12)
    assert "vocab.txt" not in files.listdir(bucket)
    assert "notes.txt" in files.listdir(bucket)


def test_what_stands_in_a_bucket_outlives_a_failed_save(bucket):
    with replacing_directory(bucket) as place:
        pathlib.Path(place, "config.json").write_text("good")
    with pytest.raises(ZeroDivisionError), replacing_directory(bucket) as place:
        pathlib.Path(place, "config.json").write_text("bad")
        raise ZeroDivisionError
    with files.open(f"{bucket}/config.json") as file:
        assert file.read() == b"good"


def test_what_is_no_source_of_weights_in_a_bucket(bucket):
    with pytest.raises(UserError, match="run does not exist"):
        find_initial_weights(bucket)
    files.makedirs(bucket)
    with pytest.raises(UserError, match="neither a model directory"):
        find_initial_weights(bucket)
