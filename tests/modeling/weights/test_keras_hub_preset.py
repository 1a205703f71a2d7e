"""Presets that KerasHub 0.32 saved (tests/data/keras_hub)."""

import json
import pathlib
import shutil

import h5py
import numpy as np
import pytest

from albert_tf.config import UserError
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
)
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMaskedLM,
    AlbertModel,
)

DATA = pathlib.Path(__file__).parents[2] / "data" / "keras_hub"


@pytest.fixture
def preset(tmp_path, tiny_directory):
    """preset(task) returns a directory, of the backbone alone without one."""

    def copied(task=""):
        place = tmp_path / "preset"
        shutil.copytree(DATA / "classifier", place)
        for name in ("task.json", "task.weights.h5"):
            (place / name).unlink()
            if task:
                shutil.copy(DATA / task / name, place)
        vocabulary = place / "assets" / "tokenizer" / "vocabulary.spm"
        vocabulary.parent.mkdir(parents=True)
        shutil.copy(tiny_directory / "spiece.model", vocabulary)
        # Keras', which is no tokenizer.json of Hugging Face.
        (place / "tokenizer.json").write_text('{"class_name": "x"}')
        return place

    return copied


@pytest.mark.parametrize(
    ("task", "kind", "output", "bound"),
    [
        ("", AlbertModel, "pooled_output", 1e-5),
        ("classifier", AlbertForClassification, "logits", 1e-5),
        # The epsilon of its head is 1e-5, that of ALBERT 1e-12.
        ("masked_lm", AlbertForMaskedLM, "masked_lm_logits", 1e-4),
    ],
)
def test_outputs_are_those_of_keras_hub(preset, task, kind, output, bound):
    recorded = dict(np.load(DATA / "outputs.npz"))
    loaded = load_model_directory(str(preset(task)))
    assert type(loaded.model) is kind
    assert loaded.labels == (
        ["LABEL_0", "LABEL_1", "LABEL_2"] if task == "classifier" else None
    )
    assert loaded.max_seq_length == 16
    names = ["input_ids", "input_mask", "segment_ids"]
    names += ["masked_lm_positions"] * (task == "masked_lm")
    found = loaded.model({name: recorded[name] for name in names})[output]
    expected = recorded[output]
    atol = bound * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("activation", "rows", "kind"),
    [
        (None, 3, "AlbertForClassification"),
        ("softmax", 3, "AlbertForClassification"),
        ("linear", 1, "AlbertForRegression"),
        ("sigmoid", 3, "AlbertForMultiLabelClassification"),
        ("sigmoid", 1, "AlbertForMultiLabelClassification"),
    ],
)
def test_the_activation_decides_the_kind_of_classes(
    preset, activation, rows, kind
):
    directory = preset("classifier")
    edited("task.json", {"config": {"activation": activation}})(directory)
    with h5py.File(directory / "task.weights.h5", "a") as file:
        for name in ("layers/dense/vars/0", "layers/dense/vars/1"):
            value = file[name][..., :rows]
            del file[name]
            file[name] = value
    loaded = load_model_directory(str(directory))
    assert type(loaded.model).__name__ == kind
    labels = [f"LABEL_{n}" for n in range(rows)]
    assert loaded.labels == (None if "Regression" in kind else labels)


def test_bfloat16_as_keras_stores_it(preset):
    directory = preset()
    with h5py.File(directory / "model.weights.h5", "a") as file:
        bits = file[KERNEL][()].view("<u4") >> 16
        del file[KERNEL]
        file[KERNEL] = bits.astype("<u2").view("V2")
        file[KERNEL].attrs["dtype"] = "bfloat16"
    stored = find_initial_weights(str(directory)).weights
    found = stored.read("albert.encoder.embedding_hidden_mapping_in.weight")
    np.testing.assert_array_equal(found.T, (bits << 16).view("f4"))


def test_a_preprocessor_says_where_texts_are_cut(preset):
    directory = preset()
    path = directory / "preprocessor.json"
    for length, expected in ((9, 9), (99, 16), (None, 16)):
        path.write_text(json.dumps({"config": {"sequence_length": length}}))
        found = find_initial_weights(str(directory)).description
        assert found.max_seq_length == expected


def edited(name, values):
    def edit(place):
        path = place / name
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return edit


KERNEL = "layers/dense/vars/0"


def replaced(make):
    def edit(place):
        with h5py.File(place / "model.weights.h5", "a") as file:
            del file[KERNEL]
            make(file)

    return edit


def linked(file):
    file[KERNEL] = h5py.ExternalLink("other.h5", KERNEL)


def numbers(file):
    file[KERNEL] = np.ones((4, 8), "int32")


def compressed(file):
    zeros = np.zeros((4, 8), "float32")
    file.create_dataset(KERNEL, data=zeros, compression="gzip")


def elsewhere(file):
    file.create_dataset(
        KERNEL, (4, 8), "float32", external=[("/etc/passwd", 0, 128)]
    )


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            edited("config.json", {"class_name": "BertBackbone"}),
            "class_name is 'BertBackbone'; of KerasHub's models only AlbertB",
        ),
        (
            edited("config.json", {"config": {"num_layers": 3}}),
            r"config\.json lacks vocabulary_size, num_heads",
        ),
        (
            edited("task.json", {"class_name": "AlbertOther"}),
            "class_name is 'AlbertOther'; only AlbertTextClassifier and Albe",
        ),
        (
            edited("task.json", {"config": {"activation": "tanh"}}),
            "activation='tanh' is not one of linear, softmax, sigmoid",
        ),
        *(
            (replaced(make), "has no array of floating-point numbers layers/")
            for make in (
                *(linked, numbers, compressed, elsewhere),
                lambda file: None,
            )
        ),
        (
            lambda place: (place / "model.weights.h5").write_bytes(b"0" * 99),
            "is no readable HDF5 file",
        ),
        (
            lambda place: (place / "model.weights.h5").write_text(
                "version https://git-lfs.github.com/spec/v1\n"
            ),
            "is a pointer of Git LFS",
        ),
        (
            lambda place: (place / "model.weights.h5").unlink(),
            r"model\.weights\.h5 is missing",
        ),
    ],
)
def test_faulty_presets(preset, edit, message):
    directory = preset("classifier")
    shutil.copy(directory / "model.weights.h5", directory / "other.h5")
    edit(directory)
    with pytest.raises(UserError, match=message) as raised:
        load_model_directory(str(directory))
    assert "\n" not in str(raised.value)
