"""Model directories: there and back, refused, and as initial weights."""

import json
import os
import pathlib

import numpy as np
import pytest
from numpy_albert import assert_same, values_of
from tiny_models import TINY, built, edit_json, save

from albert_tf.config import FeatureConfig, UserError, override, to_dict
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
)
from albert_tf.interchange.model_files import (
    TASK_FILE,
    TaskRecord,
    read_task_record,
    recover_directory,
    replacing_directory,
)
from albert_tf.io import files
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
)
from albert_tf.modeling.weights.pretrained import initialize


@pytest.fixture
def directory(tmp_path, tiny_tokenizer):
    """A pretrained model."""
    return save(tmp_path / "model", built(), tiny_tokenizer, 12)


def test_files_of_the_directory(directory):
    assert sorted(os.listdir(directory)) == [
        "config.json",
        "model.safetensors",
        "spiece.model",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    values = json.loads(pathlib.Path(directory, "config.json").read_text())
    # Google's gelu is what Hugging Face calls gelu_new.
    assert values["hidden_act"] == "gelu_new"
    assert values["architectures"] == ["AlbertForPreTraining"]
    assert values["model_type"] == "albert"


def test_a_tokenizer_of_another_size_is_refused(directory):
    edit_json(directory, "config.json", vocab_size=210)
    with pytest.raises(UserError, match="has 200 pieces.*vocab_size=210"):
        load_model_directory(directory)


def test_label_names_do_not_make_a_classifier(directory):
    edit_json(directory, "config.json", id2label={"0": "a"})
    assert load_model_directory(directory).labels is None


def test_initialize_loads_the_encoder_and_no_other_head(
    tmp_path, directory, tiny_tokenizer
):
    classifier = built("classification")
    of_three = save(tmp_path / "classifier", classifier, tiny_tokenizer)
    for number, path, encoder in (
        (3, of_three, classifier.encoder),
        (5, of_three, classifier.encoder),
        (4, directory, built().encoder),
    ):
        model = AlbertForClassification(TINY, number)
        kernel = model.classification.classifier.kernel
        new = np.array(kernel)
        line = initialize(model, find_initial_weights(path))
        assert_same(values_of(model.encoder), values_of(encoder))
        np.testing.assert_array_equal(kernel, new)
    assert "model directory" in line
    assert "Initialised: albert/classification/classifier/bias, " in line
    assert "Not needed: predictions.LayerNorm.bias" in line


def test_initialize_refuses_an_encoder_that_does_not_fit(directory):
    weights = find_initial_weights(directory)
    deeper = override(TINY, {"num_hidden_groups": 3})
    with pytest.raises(UserError, match="missing: albert.*groups.1"):
        initialize(AlbertForPretraining(deeper), weights)


@pytest.fixture
def bucket(request):
    """A directory in a bucket, for which TensorFlow's `ram://` stands."""
    return f"ram://{request.node.name}/run"


def test_paths_without_weights(tmp_path, bucket):
    for path in (str(tmp_path / "run"), bucket):
        with pytest.raises(UserError, match="run does not exist"):
            find_initial_weights(path)
        files.makedirs(path)
        with pytest.raises(UserError, match="neither a model directory"):
            find_initial_weights(path)


@pytest.mark.parametrize(
    "load",
    [
        load_model_directory,
        find_initial_weights,
        AlbertForPretraining.from_pretrained,
    ],
)
def test_the_path_of_a_run_means_its_model(directory, tmp_path, load):
    (tmp_path / "config.json").write_text('{"job": "pretrain"}')
    found = load(str(tmp_path))
    assert type(found) is type(load(directory))
    os.makedirs(tmp_path / "runs" / "run-1")
    os.rename(directory, tmp_path / "runs" / "run-1" / "model")
    with pytest.raises(UserError, match="holds several runs; name one of the"):
        load(str(tmp_path / "runs"))


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


def test_a_link_to_a_directory_stays(tmp_path):
    (tmp_path / "disk/model").mkdir(parents=True)
    (tmp_path / "disk/model/config.json").write_text("old")
    (tmp_path / "model").symlink_to("disk/model")
    with replacing_directory(str(tmp_path / "model")) as place:
        pathlib.Path(place, "config.json").write_text("new")
    assert sorted(os.listdir(tmp_path)) == ["disk", "model"]
    assert os.listdir(tmp_path / "disk") == ["model"]
    assert (tmp_path / "disk/model/config.json").read_text() == "new"


def test_a_failed_save_changes_nothing(tmp_path):
    directory = str(tmp_path / "model")
    with replacing_directory(directory) as place:
        pathlib.Path(place, "config.json").write_text("good")
    with (
        pytest.raises(ZeroDivisionError),
        replacing_directory(directory) as place,
    ):
        pathlib.Path(place, "config.json").write_text("bad")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["model"]
    assert (tmp_path / "model/config.json").read_text() == "good"


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


def test_there_and_back_on_a_disk_and_in_a_bucket(
    tmp_path, bucket, tiny_tokenizer
):
    labels = ("good", "bad", "ugly")
    model = built("classification", labels=labels, hidden_act="gelu_exact")
    local = save(tmp_path / "model", model, tiny_tokenizer, 12)
    remote = save(f"{bucket}/model", model, tiny_tokenizer, 12)
    assert files.listdir(remote) == sorted(os.listdir(local))
    for place in (local, bucket):
        loaded = load_model_directory(place)
        assert loaded.tokenizer.fingerprint == tiny_tokenizer.fingerprint
        assert loaded.model.config == model.config
        assert (loaded.max_seq_length, loaded.labels) == (12, model.labels)
        assert_same(values_of(loaded.model), values_of(model))
    found = find_initial_weights(bucket)
    assert (found.origin, found.directory) == ("run directory", remote)
    assert found.fingerprint == find_initial_weights(local).fingerprint


def test_only_files_of_a_model_are_replaced_in_a_bucket(bucket):
    files.makedirs(bucket)
    for name in ("vocab.txt", "notes.txt"):
        files.write(f"{bucket}/{name}", b"old")
    with replacing_directory(bucket) as place:
        pathlib.Path(place, "config.json").write_text("new")
    assert files.listdir(bucket) == ["config.json", "notes.txt"]


def test_a_task_there_and_back(tmp_path):
    features = FeatureConfig(
        max_seq_length=384,
        doc_stride=100,
        max_query_length=50,
        max_answer_length=20,
        n_best_size=10,
        max_choice_length=90,
        null_threshold=-2.75,
        word_boundaries="punctuation",
        label_thresholds="0.25,0.5",
        temperature=1.5,
    )
    assert not to_dict(features).items() & to_dict(FeatureConfig()).items()
    assert read_task_record(str(tmp_path), 512) is None
    record = TaskRecord(
        "SQuAD2.0", features, True, "owner/name@0123", ("labels=a",), "|"
    )
    record.write(str(tmp_path))
    assert read_task_record(str(tmp_path), 512) == record


def test_missing_settings_of_a_task_have_their_defaults(tmp_path):
    values = {"task": "RTE", "features": {"max_seq_length": 64}}
    (tmp_path / TASK_FILE).write_text(json.dumps(values))
    record = TaskRecord("RTE", FeatureConfig(max_seq_length=64))
    assert read_task_record(str(tmp_path), 512) == record


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"task": 7, "features": {}}', "'task' to be a string, got 7"),
        (
            '{"task": "a", "features": {}, "label_separator": 1}',
            "'label_separator' to be a string, got 1",
        ),
        ('{"task": "RTE"}', "'features' to be an object, got None"),
        ('{"task": "a", "features": {}, "pairs": 1}', "true or false, got 1"),
        ('{"task": "a", "features": {"max_seq_length": 513}}', "513 exceeds"),
    ],
)
def test_a_damaged_record_of_a_task(tmp_path, content, message):
    path = tmp_path / TASK_FILE
    path.write_text(content)
    with pytest.raises(UserError, match=message) as raised:
        read_task_record(str(tmp_path), 512)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
