"""Inputs that are made when none are given."""

import dataclasses
import json
import os
import pathlib

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Example
from bin.benchmarking import workspace as workspace_module


def test_corpus_and_vocabulary_are_made(workspace, monkeypatch):
    def build(directory, *, workers, progress):
        os.makedirs(os.path.join(directory, "train"))
        for name in ("a.txt", "b.txt"):
            path = pathlib.Path(directory, "train", name)
            path.write_text("A word of text in it.\n" * 50)

    monkeypatch.setattr("data_prep.sample_corpus.build_sample_corpus", build)
    bare = dataclasses.replace(
        workspace, inputs=[], tokenizer=None, vocab_size=26
    )
    summary = os.path.join(bare.tokenizer_dir, "vocab_summary.json")
    settings = json.loads(pathlib.Path(summary).read_text())["settings"]
    assert settings["vocab_size"] == 26


def test_paragraphs_are_the_examples_without_a_task(
    workspace, tiny_tokenizer, monkeypatch
):
    monkeypatch.setattr(workspace_module, "_MAX_EXAMPLES", 3)
    inputs = workspace.task_inputs
    assert [one.label for one in inputs.examples] == ["even", "odd", "even"]
    assert all(one.texts[0] for one in inputs.examples)
    assert inputs.labels == ["even", "odd"]
    assert inputs.work.model.vocab_size == tiny_tokenizer.vocab_size


def test_the_first_examples_of_a_task_are_taken(workspace, monkeypatch):
    monkeypatch.setattr(workspace_module, "_MAX_EXAMPLES", 2)
    workspace.task = TASKS["SST-2"]
    workspace.examples = [Example((word,), "1") for word in "abc"]
    inputs = workspace.task_inputs
    assert [one.texts for one in inputs.examples] == [("a",), ("b",)]
    assert inputs.labels == ["0", "1"]


def test_two_paragraphs_are_needed(workspace, tmp_path):
    (tmp_path / "one.txt").write_text("Only this.\n")
    workspace.inputs = [str(tmp_path / "one.txt")]
    with pytest.raises(UserError, match="one.txt: too little text; at least"):
        _ = workspace.first_paragraphs
