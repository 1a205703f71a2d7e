"""Models on the Hugging Face hub, by name, wherever a model is taken."""

import json
import pathlib
import shutil
import sys

import numpy as np
import pytest
from numpy_albert import values_of
from program_runner import run_program
from safetensors.numpy import load_file, save_file
from tiny_models import built, edit_json, save, torch_archive

from albert_tf.config import UserError
from albert_tf.interchange.convert import convert
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
)
from albert_tf.interchange.model_files import FILES
from albert_tf.modeling.models import AlbertForClassification, AlbertModel
from albert_tf.modeling.weights import model_paths
from albert_tf.modeling.weights.adapters import add_adapters
from albert_tf.text.tokenizer import load_tokenizer

LABELS = ("bad", "good")


@pytest.fixture(scope="module")
def encoder_files(tmp_path_factory, tiny_tokenizer):
    """A pretrained model as the hub's: no settings of this library."""
    root = tmp_path_factory.mktemp("encoder")
    save(root / "ours", built(), tiny_tokenizer)
    convert(str(root / "ours"), str(root / "hub"), "huggingface", log=str)
    return root / "hub"


@pytest.fixture(scope="module")
def classifier_files(tmp_path_factory, tiny_tokenizer):
    """A fine-tuned classifier as transformers saves it."""
    root = tmp_path_factory.mktemp("classifier")
    model = built("classification", labels=LABELS)
    save(root / "ours", model, tiny_tokenizer)
    convert(str(root / "ours"), str(root / "hub"), "huggingface", log=str)
    return root / "hub"


@pytest.fixture
def encoder(server, encoder_files):
    extra = {"README.md": b"#", "tf_model.h5": b"1", "pytorch_model.bin": b"2"}
    server.add("albert/albert-tiny", encoder_files, extra)
    return "hf://albert/albert-tiny"


@pytest.fixture
def classifier(server, classifier_files):
    server.add("someone/mood", classifier_files)
    return "hf://someone/mood"


def assert_same_weights(one, other):
    one, other = values_of(one), values_of(other)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])


def test_all_files_of_a_model_directory_are_downloaded():
    # The one directory among them has one file, and one is not read.
    inside = {"1_Pooling": "*_Pooling/config.json"}
    read = FILES - {"special_tokens_map.json"}
    assert set(model_paths.FILES) >= {inside.get(n, n) for n in read}


def test_a_model_with_its_tokenizer(server, encoder, tiny_tokenizer):
    loaded = load_model_directory(encoder)
    assert_same_weights(loaded.model, built())
    assert loaded.tokenizer.fingerprint == tiny_tokenizer.fingerprint
    assert server.downloads() == [
        "config.json",
        "model.safetensors",
        "spiece.model",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_a_fine_tuned_model_has_its_labels(classifier):
    loaded = load_model_directory(classifier)
    assert loaded.labels == list(LABELS)
    expected = built("classification", labels=LABELS)
    assert_same_weights(loaded.model, expected)


def test_the_configuration_of_released_models(server, encoder_files, tmp_path):
    shutil.copytree(encoder_files, tmp_path / "released")
    edit_json(
        tmp_path / "released",
        "config.json",
        architectures=["AlbertForMaskedLM"],
        attention_probs_dropout_prob=0,
        hidden_dropout_prob=0,
        layers_to_keep=[],
        net_structure_type=0,
        num_memory_blocks=0,
        gap_size=0,
        down_scale_factor=1,
    )
    (tmp_path / "released" / "tokenizer_config.json").unlink()
    server.add("albert/albert-tiny", tmp_path / "released")
    loaded = load_model_directory("hf://albert/albert-tiny")
    # The sentence order head, which its class lacks, is left out.
    assert type(loaded.model).__name__ == "AlbertForMaskedLM"
    assert_same_weights(loaded.model.encoder, built().encoder)


def test_initial_weights_know_their_repository(server, encoder, tiny_tokenizer):
    stored = find_initial_weights(encoder)
    commit = server.repositories["albert/albert-tiny"].refs["main"]
    assert stored.hub_name == f"albert/albert-tiny@{commit}"
    assert stored.origin == "Hugging Face directory"
    found = load_tokenizer(stored.tokenizer_path)
    assert found.fingerprint == tiny_tokenizer.fingerprint


def test_from_pretrained(encoder, classifier):
    assert_same_weights(
        AlbertModel.from_pretrained(encoder).encoder, built().encoder
    )
    model = AlbertForClassification.from_pretrained(classifier)
    assert model.labels == list(LABELS)


def test_a_tokenizer_alone(server, encoder, tiny_tokenizer):
    found = load_tokenizer(encoder)
    assert found.fingerprint == tiny_tokenizer.fingerprint
    assert "model.safetensors" not in server.downloads()


def test_weights_in_several_files(server, encoder_files, tmp_path):
    directory = tmp_path / "parts"
    shutil.copytree(encoder_files, directory)
    weights = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    names = sorted(weights)
    where = {}
    for number in (1, 2):
        file = f"model-0000{number}-of-00002.safetensors"
        part = names[number - 1 :: 2]
        save_file({name: weights[name] for name in part}, directory / file)
        where |= dict.fromkeys(part, file)
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    server.add("someone/parts", directory)
    assert_same_weights(
        load_model_directory("hf://someone/parts").model, built()
    )


def test_adapters(server, encoder, tmp_path):
    model = AlbertModel.from_pretrained(encoder)
    for variable in model.weights:
        variable.trainable = False
    query = model.encoder.blocks[0].attention.query
    query.enable_lora(2)
    query.lora_kernel_b.assign(np.ones(query.lora_kernel_b.shape))
    model.save_pretrained(str(tmp_path / "adapters"), adapters=True)
    server.add("someone/adapters", tmp_path / "adapters")
    again = AlbertModel.from_pretrained(encoder)
    again.load_adapters("hf://someone/adapters")
    np.testing.assert_allclose(
        again.encoder.blocks[0].attention.query.kernel, query.kernel, rtol=1e-6
    )


def test_adapters_in_a_file_of_torch(server, encoder, tmp_path):
    model = AlbertModel.from_pretrained(encoder)
    add_adapters(model, 2, 0.0, trains_pooler=False)
    model.save_pretrained(str(tmp_path), adapters=True)
    path = tmp_path / "adapter_model.safetensors"
    content = torch_archive(load_file(path))
    path.unlink()
    server.add("a/old", tmp_path, {"adapter_model.bin": content})
    again = AlbertModel.from_pretrained(encoder)
    again.load_adapters("hf://a/old")
    assert again.encoder.blocks[0].attention.query.lora_enabled


def test_adapters_are_no_model(server):
    server.add("a/lora", files={"adapter_config.json": b"{}"})
    with pytest.raises(
        UserError, match="^hf://a/lora holds adapters of a model, not the model"
    ):
        AlbertModel.from_pretrained("hf://a/lora")


def test_adapters_beside_a_model(server, encoder_files):
    server.add("a/both", encoder_files, {"adapter_config.json": b"{}"})
    with pytest.raises(
        UserError, match="^hf://a/both holds adapters beside the model, "
    ):
        AlbertModel.from_pretrained("hf://a/both")


def test_the_tokenizer_of_a_keras_hub_preset(server, tiny_tokenizer):
    name = "assets/tokenizer/vocabulary.spm"
    server.add("keras/tiny", files={name: tiny_tokenizer.model_bytes})
    found = load_tokenizer("hf://keras/tiny")
    assert found.fingerprint == tiny_tokenizer.fingerprint


def without_safetensors(server, files, name, **others):
    repository = server.add(name, files, others)
    repository.files().pop("model.safetensors")
    return f"hf://{name}"


def test_weights_of_torch(server, classifier_files, classifier):
    weights = load_file(classifier_files / "model.safetensors")
    path = without_safetensors(
        server,
        classifier_files,
        "textattack/mood",
        **{"pytorch_model.bin": torch_archive(weights)},
    )
    loaded = load_model_directory(path)
    expected = load_model_directory(classifier)
    assert_same_weights(loaded.model, expected.model)
    assert loaded.labels == expected.labels


def test_other_pickles_are_not_downloaded(server, classifier_files):
    path = without_safetensors(
        server, classifier_files, "textattack/mood", **{"model.pt": b""}
    )
    with pytest.raises(UserError) as caught:
        load_model_directory(path)
    assert str(caught.value) == (
        "hf://textattack/mood has no model.safetensors: its model.pt "
        "is a pickle, which can run any code when it is read, so it is never "
        "opened here. One of its pull requests may have been converted "
        "(hf://textattack/mood@refs/pr/1); or, if you trust it, python -c "
        "\"import transformers as t; n, d = 'textattack/mood', 'mood'; "
        "t.AutoTokenizer.from_pretrained(n).save_pretrained(d); getattr(t, "
        "t.AutoConfig.from_pretrained(n).architectures[0])"
        '.from_pretrained(n).save_pretrained(d)" in an environment with torch '
        "and transformers 4 writes the directory mood."
    )
    assert "model.pt" not in server.downloads()


def test_weights_of_tensorflow(server, classifier_files):
    path = without_safetensors(
        server, classifier_files, "a/b", **{"tf_model.h5": b""}
    )
    server.repositories["a/b"].refs["v1"] = server.repositories["a/b"].refs[
        "main"
    ]
    with pytest.raises(UserError) as caught:
        find_initial_weights(f"{path}@v1")
    assert "its tf_model.h5 is not read here, only model" in str(caught.value)
    assert "from_pretrained(n, from_tf=True, revision='v1')" in str(
        caught.value
    )


def test_weights_of_another_runtime(server, classifier_files):
    path = without_safetensors(
        server, classifier_files, "a/b", **{"model.onnx": b""}
    )
    with pytest.raises(UserError, match=r"model\.onnx.*; a model needs config"):
        load_model_directory(path)


@pytest.mark.parametrize(
    "load",
    [load_model_directory, find_initial_weights, AlbertModel.from_pretrained],
)
def test_a_repository_without_a_model(server, load):
    server.add("a/b", files={"README.md": b"", "data.csv": b""})
    with pytest.raises(UserError) as caught:
        load("hf://a/b")
    assert str(caught.value) == (
        "hf://a/b holds README.md, data.csv; a model needs config.json and "
        "model.safetensors."
    )


def test_a_repository_without_a_tokenizer(server):
    server.add("a/b", files={"README.md": b"", "data.csv": b""})
    with pytest.raises(UserError, match="hf://a/b has no tokenizer, none of"):
        load_tokenizer("hf://a/b")


def test_a_model_of_another_family(server, encoder_files, tmp_path):
    shutil.copytree(encoder_files, tmp_path / "bert")
    edit_json(tmp_path / "bert", "config.json", model_type="bert")
    server.add("google/bert", tmp_path / "bert")
    with pytest.raises(UserError, match="bert"):
        load_model_directory("hf://google/bert")


@pytest.mark.parametrize(
    "load",
    [
        load_model_directory,
        load_tokenizer,
        find_initial_weights,
        AlbertModel.from_pretrained,
    ],
)
def test_a_name_without_the_scheme(load, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="given as hf://albert/albert-base-v2."):
        load("albert/albert-base-v2")


def test_predict(classifier):
    done = run_program(
        "predict",
        "--mode=classify",
        f"--model_dir={classifier}",
        "--text=Any text.",
    )
    answer = json.loads(done.stdout)
    assert answer["label"] in LABELS, done.stderr
    assert set(answer["probabilities"]) == set(LABELS)


def test_convert(encoder, tmp_path):
    done = run_program(
        "convert",
        f"--from_path={encoder}",
        f"--to_path={tmp_path / 'here'}",
        "--to_format=model_directory",
    )
    assert done.status == 0, done.error
    here = load_model_directory(str(tmp_path / "here"))
    assert_same_weights(here.model, built())


def test_a_program_reports_a_missing_model_in_one_line(server, tmp_path):
    done = run_program(
        "extend_vocab",
        "--model_dir=hf://a/b",
        f"--input={pathlib.Path(__file__)}",
        "--num_new_tokens=1",
        f"--output_dir={tmp_path / 'larger'}",
    )
    assert done.error.startswith("extend_vocab: hf://a/b: http"), done.stderr
    assert "\n" not in done.error


def test_a_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match="pip install huggingface_hub"):
        load_model_directory("hf://a/b")
