"""Models with a pooling that other libraries lack, in files."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from numpy_albert import assert_same, values_of
from safetensors.numpy import load_file, save_file
from tiny_models import TINY, built, edit_json, save

from albert_tf.config import UserError, override
from albert_tf.interchange.convert import convert
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
)
from albert_tf.modeling.heads.pooling import POOLINGS
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
    AlbertForRegression,
    AlbertModel,
)
from albert_tf.modeling.weights.pretrained import initialize

OWN = [name for name in POOLINGS if name != "first"]
HEADS = ["classification", "regression", "multiple_choice"]
WEIGHTS = "model.safetensors"


@pytest.fixture
def saved(tmp_path, tiny_tokenizer):
    """Gives a function that saves a model and returns its path."""

    def save_built(head, name="source", **changes):
        return save(tmp_path / name, built(head, **changes), tiny_tokenizer)

    return save_built


def config_of(directory):
    return json.loads(pathlib.Path(directory, "config.json").read_text())


def names_in(directory):
    return set(load_file(pathlib.Path(directory, WEIGHTS)))


@pytest.mark.slow
@pytest.mark.parametrize("pooling", OWN)
@pytest.mark.parametrize("head", HEADS)
def test_a_directory_there_and_back(saved, head, pooling):
    directory = saved(head, pooling=pooling)
    model = built(head, pooling=pooling)
    loaded = load_model_directory(directory)
    assert type(loaded.model) is type(model)
    assert loaded.model.config == model.config
    assert loaded.labels == model.labels
    assert_same(values_of(loaded.model), values_of(model))


@pytest.mark.parametrize("head", HEADS)
def test_transformers_does_not_take_the_weights_for_its_own(saved, head):
    """The Auto classes look at the names of the weights alone."""
    common = saved(head, "common")
    assert "pooling" not in pathlib.Path(common, "config.json").read_text()
    for pooling in OWN:
        directory = saved(head, pooling, pooling=pooling)
        config = config_of(directory)
        assert config["architectures"] == ["AlbertModel"]
        assert config["albert_tf"].pop("pooling") == pooling
        there = config_of(common)
        assert config == there | {"architectures": ["AlbertModel"]}
        own = names_in(directory) - names_in(common)
        assert own == {
            f"{pooling}_classifier.{name}" for name in ("weight", "bias")
        }
        assert not any(n.startswith("classifier") for n in names_in(directory))


def test_a_pretrained_model_keeps_the_name_for_its_tasks(saved):
    directory = saved("pretraining", pooling="mean")
    assert config_of(directory)["architectures"] == ["AlbertForPreTraining"]
    stored = find_initial_weights(directory)
    assert stored.config.pooling == "mean"
    new = AlbertForClassification(stored.config, 2)
    assert "Initialised: albert/classification/" in initialize(new, stored)
    common = names_in(saved("pretraining", "common"))
    assert names_in(directory) == common


# --- What transformers makes of them --------------------------------------


def trained_there(directory, target, architecture, names):
    """Writes what transformers saves of a model that it opened from ours.

    It copies our section; `names` are those of the weights there.
    """
    shutil.copytree(directory, target)
    edit_json(target, "config.json", architectures=[architecture])
    path = pathlib.Path(target, WEIGHTS)
    weights = load_file(path)
    kept = {
        names.get(name, name): value
        for name, value in weights.items()
        if names.get(name, name)
    }
    save_file(kept, path)
    return str(target)


def test_a_classifier_that_was_trained_there_pools_as_there(saved, tmp_path):
    directory = trained_there(
        saved("classification", pooling="mean"),
        tmp_path / "theirs",
        "AlbertForSequenceClassification",
        {
            f"mean_classifier.{name}": f"classifier.{name}"
            for name in ("weight", "bias")
        },
    )
    stored = find_initial_weights(directory)
    assert not stored.description.ours
    model = load_model_directory(directory).model
    assert type(model) is AlbertForClassification
    assert model.config.pooling == "first"


def test_a_head_that_was_dropped_there_is_not_sought(saved, tmp_path):
    directory = trained_there(
        saved("classification", pooling="mean"),
        tmp_path / "theirs",
        "AlbertModel",
        {f"mean_classifier.{name}": "" for name in ("weight", "bias")},
    )
    model = load_model_directory(directory).model
    assert type(model) is AlbertModel


def test_a_section_of_another_pooling_is_refused(saved):
    directory = saved("classification", pooling="mean")
    section = config_of(directory)["albert_tf"]
    for pooling, message in (
        ("mean_max", "unexpected: mean_classifier.bias, mean_classifier.w"),
        ("median", "config.json: pooling='median' is not one of first, "),
    ):
        edit_json(
            directory, "config.json", albert_tf={**section, "pooling": pooling}
        )
        with pytest.raises(UserError, match=message) as raised:
            load_model_directory(directory)
        assert "\n" not in str(raised.value)


def test_a_key_of_the_same_name_elsewhere_is_not_ours(saved):
    directory = saved("classification")
    edit_json(directory, "config.json", pooling="cls")
    assert load_model_directory(directory).model.config.pooling == "first"


# --- Conversion -----------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    ("to_format", "library"),
    [
        ("huggingface", "transformers"),
        ("google_tf1", "google-research/albert"),
        ("keras_hub", "KerasHub's AlbertBackbone"),
    ],
)
def test_other_libraries_have_no_such_head(
    saved, tmp_path, monkeypatch, to_format, library, head
):
    monkeypatch.setattr(
        "albert_tf.interchange.convert.find_spec", lambda name: True
    )
    source, target = saved(head, pooling="mean_max"), tmp_path / "target"
    message = (
        f"{library} has no head {head} with pooling=mean_max, so it cannot "
        "hold an AlbertFor.*; --head=none takes the encoder alone"
    )
    if to_format != "keras_hub":
        message += ", and fine-tuning with --pooling=first makes one"
    with pytest.raises(UserError, match=message):
        convert(source, str(target), to_format)
    assert not target.exists()


def test_a_pooling_that_a_conversion_sets_is_refused_too(saved, tmp_path):
    with pytest.raises(UserError, match="no head regression with pooling=mea"):
        convert(
            saved("regression"),
            str(tmp_path / "target"),
            "huggingface",
            changes={"pooling": "mean"},
        )


@pytest.mark.parametrize("to_format", ["huggingface", "google_tf1"])
def test_what_a_format_does_not_store_is_reported(saved, tmp_path, to_format):
    lines = []
    convert(
        saved("classification", pooling="mean"),
        str(tmp_path / "target"),
        to_format,
        head="none",
        log=lines.append,
    )
    assert "Not stored: pooling=mean; it is read back as first." in lines
    stored = find_initial_weights(str(tmp_path / "target"))
    assert stored.config.pooling == "first"


def test_another_pooling_of_the_same_weights_is_reported(saved, tmp_path):
    lines, target = [], str(tmp_path / "target")
    convert(
        saved("classification"),
        target,
        "model_directory",
        changes={"pooling": "mean"},
        log=lines.append,
    )
    assert "pooling was first and is mean: the outputs change." in lines
    assert load_model_directory(target).model.config.pooling == "mean"


# --- from_pretrained ------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [AlbertForClassification, AlbertForMultipleChoice]
)
def test_a_pretrained_model_gets_a_pooling_for_its_task(saved, capsys, kind):
    directory = saved("pretraining")
    labels = {"num_labels": 2} if kind.takes_labels() else {}
    changes = {"pooling": "mean_max", "hidden_dropout_prob": 0.1}
    model = kind.from_pretrained(
        directory, **labels, allow_missing=True, changes=changes
    )
    assert model.config == override(TINY, changes)
    (head,) = model.heads.values()
    width, _ = head.classifier.kernel.shape
    assert width == 2 * TINY.hidden_size
    assert "Initialised: albert/" in capsys.readouterr().out
    source = built("pretraining")
    assert_same(values_of(model.encoder), values_of(source.encoder))


def test_a_trained_head_keeps_its_pooling(saved):
    directory = saved("regression")
    with pytest.raises(UserError, match=r"missing: mean_classifier\.bias"):
        AlbertForRegression.from_pretrained(
            directory, changes={"pooling": "mean"}
        )


def test_a_task_changes_no_weight(saved):
    directory = saved("pretraining")
    with pytest.raises(UserError, match="sharing is not among the settings th"):
        AlbertForPretraining.from_pretrained(
            directory, changes={"sharing": "none"}
        )


def test_adapters_keep_the_classifier_by_its_name(saved, tmp_path):
    directory = saved("classification", pooling="mean")
    model = AlbertForClassification.from_pretrained(directory)
    model.encoder.trainable = False
    model.encoder.blocks[0].attention.query.enable_lora(2)
    adapters = str(tmp_path / "adapters")
    model.save_pretrained(adapters, adapters=True)
    path = pathlib.Path(adapters, "adapter_config.json")
    settings = json.loads(path.read_text())
    assert settings["modules_to_save"] == ["mean_classifier"]
    again = AlbertForClassification.from_pretrained(directory)
    again.classification.classifier.kernel.assign(
        np.zeros((TINY.hidden_size, 3))
    )
    again.load_adapters(adapters)
    np.testing.assert_array_equal(
        again.classification.classifier.kernel,
        model.classification.classifier.kernel,
    )
