"""The examples run: the notebook's cells in order, the worked sentence."""

import json
from pathlib import Path

import pytest
from training_fixtures import SMALL_MODEL

from albert_tf import (
    AlbertForPretraining,
    ModelConfig,
    override,
    save_model_directory,
)

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(autouse=True)
def in_examples(monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.slow
def test_the_notebook_runs():
    import render

    path = EXAMPLES / "from_text_to_predictions.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    done = render.run(notebook)
    assert len(done["cells"]) == len(notebook["cells"])
    for before, after in zip(notebook["cells"], done["cells"], strict=True):
        # It is committed with its outputs; numbers differ between machines.
        assert bool(before.get("outputs")) is bool(after.get("outputs"))


@pytest.mark.slow
def test_the_worked_sentence_is_shown(tmp_path, tiny_tokenizer, capsys):
    import worked_sentence

    size = {"vocab_size": tiny_tokenizer.vocab_size, "num_hidden_layers": 1}
    config = override(ModelConfig(), SMALL_MODEL | size)
    config = override(config, {"max_position_embeddings": 256})
    model, directory = AlbertForPretraining(config), str(tmp_path)
    save_model_directory(directory, model, tiny_tokenizer, max_seq_length=256)
    worked_sentence.main(directory)
    printed = capsys.readouterr().out
    assert printed.count("in order 0.") == 2
    assert "position  label" in printed
