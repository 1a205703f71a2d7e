"""Uploads to the Hugging Face hub, of which a local server is the stand-in."""

import dataclasses
import functools
import json
import pathlib
from unittest import mock

import numpy as np
import pytest
from huggingface_hub import ModelCard
from program_runner import run_program
from training_fixtures import random_model

from albert_tf.config import FeatureConfig, UserError
from albert_tf.interchange.formats import FORMATS
from albert_tf.interchange.model_directory import (
    load_model_directory,
    save_model_directory,
)
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.io import hub
from albert_tf.jobs import hub_upload

TO = "hf://me/mood"
BASE = "albert/albert-base-v2@0123"


@pytest.fixture(autouse=True)
def token(server, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    server.token = "hf_right"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory, tiny_tokenizer):
    """A run directory, as far as an upload reads it."""
    root = tmp_path_factory.mktemp("runs") / "mood"
    task = TaskRecord("SST-2", FeatureConfig(max_seq_length=16), False, BASE)
    save_model_directory(
        str(root / "model"),
        random_model("classification", max_position_embeddings=16),
        tiny_tokenizer,
        max_seq_length=16,
        task=task,
    )
    evaluation = {"split": "eval", "loss": 0.5, "majority_class_accuracy": 0.5}
    # No metric, and one that has seen the answers.
    evaluation |= {"temperature": 1.5, "best_f1": 0.9}
    lines = [
        {"step": 5, **evaluation, "accuracy": 0.9},
        {"step": 10, **evaluation, "accuracy": 0.8},
    ]
    content = "".join(f"{json.dumps(line)}\n" for line in lines)
    (root / "metrics.jsonl").write_text(content)
    optimizer = {"optimizer": "adamw", "learning_rate": 1e-5}
    training = {"num_train_steps": 10, "train_batch_size": 8, "seed": 3}
    training |= {"precision": "float32", "best_metric": "accuracy"}
    config = {"training": training}
    config["optimizer"] = optimizer | {"num_warmup_steps": 2}
    recorded = {"job": "finetune", "config": config}
    (root / "config.json").write_text(json.dumps(recorded))
    return str(root)


# Most tests are not about conversion.
once_converted = functools.cache(hub_upload.converted)


def push(source, to=TO, **options):
    options = {"log": str, **options}
    with mock.patch.object(hub_upload, "converted", once_converted):
        return hub_upload.push_to_hub(source, to, **options)


def readme(server):
    return server.repositories["me/mood"].files()["README.md"].decode()


def test_an_upload_opens_by_name(server, run_dir):
    address = push(run_dir)
    ours, theirs = load_model_directory(run_dir), load_model_directory(TO)
    for one, other in zip(
        ours.model.weights, theirs.model.weights, strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert theirs.task == ours.task
    assert theirs.tokenizer.fingerprint == ours.tokenizer.fingerprint
    repository = server.repositories["me/mood"]
    assert address.endswith(repository.refs["main"])
    assert repository.messages[1:] == [
        "AlbertForClassification, written by ALBERT-TF 0.2.0"
    ]
    assert set(repository.files()) == {
        *(".gitattributes", "README.md", "config.json", "model.safetensors"),
        *("spiece.model", "task.json", "tokenizer.json"),
        "tokenizer_config.json",
    }
    assert not repository.private


def test_the_card_has_the_runs_result(server, run_dir):
    push(run_dir)
    card = ModelCard(readme(server))
    assert card.data.base_model == "albert/albert-base-v2"
    assert [
        (result.metric_name, result.metric_value)
        for result in card.data.eval_results
    ] == [("accuracy", 0.9)]
    assert "| learning_rate | 1e-05 |" in card.text


def test_the_models_own_directory_is_of_the_run(server, run_dir):
    push(f"{run_dir}/model")
    assert ModelCard(readme(server)).data.eval_results[0].metric_value == 0.9


@pytest.mark.parametrize(
    "options",
    [
        {"head": "none"},
        {"changes": {"max_position_embeddings": 8}},
        {"to_format": "litert_int8"},
    ],
)
def test_another_model_than_the_runs_has_no_metrics(
    server, run_dir, monkeypatch, options
):
    # A conversion to LiteRT takes long, and only the card is read.
    monkeypatch.setitem(FORMATS, "litert_int8", FORMATS["model_directory"])
    hub_upload.push_to_hub(run_dir, TO, log=str, **options)
    card = ModelCard(readme(server))
    assert not card.data.eval_results
    assert "| learning_rate | 1e-05 |" in card.text


def test_the_models_own_head_by_name_is_of_the_run(server, run_dir):
    push(run_dir, head="classification")
    assert ModelCard(readme(server)).data.eval_results


def test_a_model_is_replaced_only_when_asked(server, run_dir):
    push(run_dir)
    before = server.repositories["me/mood"].refs["main"]
    with pytest.raises(UserError) as caught:
        push(run_dir, head="none")
    assert str(caught.value) == (
        "hf://me/mood holds config.json, model.safetensors, spiece.model "
        "and 3 others already; --overwrite replaces the model there (its "
        "history keeps the old one)."
    )
    assert server.repositories["me/mood"].refs["main"] == before
    push(run_dir, head="none", overwrite=True)
    assert type(load_model_directory(TO).model).__name__ == "AlbertModel"


def test_files_of_the_old_model_go_and_others_stay(server, run_dir):
    old = {
        "pytorch_model.bin": b"1",
        "model-00001-of-00002.safetensors": b"2",
        "pytorch_model.bin.index.json": b"1",
        "adapter_config.json": b"2",
        "adapter_model.bin": b"2",
        "1_Pooling/config.json": b"3",
        "assets/tokenizer/vocabulary.spm": b"3",
        "vocab.txt": b"3",
        "config_sentence_transformers.json": b"3",
        "special_tokens_map.json": b"3",
        "notes.txt": b"mine",
        "onnx/model.onnx": b"theirs",
    }
    server.add("me/mood", files=old)
    push(run_dir, overwrite=True)
    names = set(server.repositories["me/mood"].files())
    assert names & old.keys() == {"notes.txt", "onnx/model.onnx"}


def test_adapters_are_replaced_only_when_asked(server, run_dir):
    server.add("me/mood", files={"adapter_config.json": b"{}"})
    with pytest.raises(UserError, match="holds adapter_config.json already; "):
        push(run_dir)


def test_a_card_of_ours_is_renewed(server, run_dir):
    push(run_dir)
    push(run_dir, overwrite=True, card_facts={"license": "mit"})
    assert ModelCard(readme(server)).data.license == "mit"


def test_an_edited_card_stays(server, run_dir):
    push(run_dir)
    repository = server.repositories["me/mood"]
    edited = f"{readme(server)}Do not use it for medicine.\n"
    repository.commit(repository.files() | {"README.md": edited.encode()})
    lines = []
    push(run_dir, overwrite=True, head="none", log=lines.append)
    assert readme(server) == edited
    assert (
        "hf://me/mood has a README.md that was edited, which stays as it is; "
        "remove it there to have a new one written."
    ) in lines
    assert type(load_model_directory(TO).model).__name__ == "AlbertModel"


def test_a_card_edited_during_the_upload(server, run_dir, monkeypatch):
    push(run_dir)
    repository = server.repositories["me/mood"]
    before = hub.upload

    def edited_first(*arguments, **options):
        repository.commit(repository.files() | {"README.md": b"# Mine"})
        return before(*arguments, **options)

    monkeypatch.setattr(hub, "upload", edited_first)
    with pytest.raises(UserError, match="was changed while this program ran"):
        push(run_dir, overwrite=True, head="none")
    assert readme(server) == "# Mine"


def test_private(server, run_dir):
    push(run_dir, private=True)
    assert server.repositories["me/mood"].private
    server.add("me/open", files={})
    with pytest.raises(UserError, match="exists and is public, so the upload"):
        push(run_dir, "hf://me/open", private=True)
    assert server.repositories["me/open"].files() == {}


def test_a_branch(server, run_dir):
    repository = server.add("me/mood", files={})
    repository.refs["next"] = repository.refs["main"]
    push(run_dir, f"{TO}@next")
    assert "model.safetensors" in repository.files("next")
    assert repository.files("main") == {}
    with pytest.raises(UserError, match="no branch, tag or commit other in"):
        push(run_dir, f"{TO}@other")


def test_without_a_token(server, run_dir, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UserError, match="refuses the token, or there is none"):
        push(run_dir)


def test_a_repository_of_others(server, run_dir, monkeypatch):
    server.add("you/mood", files={})
    monkeypatch.setattr(server, "token", "hf_yours")
    with pytest.raises(UserError, match="refuses the token.*status 40[13]"):
        push(run_dir, "hf://you/mood")


def test_another_format(server, run_dir):
    push(run_dir, to_format="google_tf1")
    files = server.repositories["me/mood"].files()
    assert "albert_config.json" in files
    card = ModelCard(files["README.md"].decode())
    assert card.data.library_name == "google-research/albert"


def test_a_formats_own_readme_is_part_of_the_card(server, run_dir, monkeypatch):
    row = FORMATS["google_tf1"]

    def write(directory, loaded):
        row.write(directory, loaded)
        own = "---\nlibrary_name: x\n---\n\nMind the commas.\n"
        pathlib.Path(directory, "README.md").write_text(own)

    changed = dataclasses.replace(row, write=write)
    monkeypatch.setitem(FORMATS, "google_tf1", changed)
    push(run_dir, to_format="google_tf1")
    assert "\n\nMind the commas.\n" in readme(server)
    library = ModelCard(readme(server)).data.library_name
    assert library == "google-research/albert"


def test_the_program(server, run_dir):
    done = run_program(
        "convert",
        f"--from_path={run_dir}",
        f"--to_path={TO}",
        "--to_format=huggingface",
        "--private",
        "--commit_message=A first model",
        "--license=apache-2.0",
        "--language=en,de",
    )
    repository = server.repositories["me/mood"]
    assert done.stdout.splitlines()[-1] == (
        "Uploaded to hf://me/mood: huggingface, AlbertForClassification: "
        f"{server.url}/me/mood/commit/{repository.refs['main']}"
    ), done.error
    assert repository.private
    assert repository.messages[-1] == "A first model"
    assert "task.json" not in repository.files()
    data = ModelCard(readme(server)).data
    assert (data.license, data.language) == ("apache-2.0", ["en", "de"])
    # Known from task.json, which this format lacks.
    assert data.datasets == ["nyu-mll/glue"]


def test_flags_of_uploads_without_an_upload(run_dir, tmp_path):
    done = run_program(
        "convert",
        f"--from_path={run_dir}",
        f"--to_path={tmp_path / 'here'}",
        "--to_format=model_directory",
        "--private",
    )
    assert done.error == "convert: --private is for --to_path=hf://owner/name."
