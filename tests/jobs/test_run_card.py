"""The model card that a run ends with."""

import pytest
from huggingface_hub import ModelCard
from training_fixtures import random_model

from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.jobs import run_card

FACTS = {"metrics": {"accuracy": 0.9}, "training": {"seed": 3}}


@pytest.fixture
def write(tmp_path, tiny_tokenizer, monkeypatch):
    """Writes the card of a run; returns its path and the lines of the log."""
    monkeypatch.setattr(run_card, "facts_of_run", lambda run_dir: FACTS)
    model = random_model("classification", max_position_embeddings=16)

    def call(load=lambda: LoadedModel(model, tiny_tokenizer, 16)):
        lines = []
        run_card.write_card(str(tmp_path), load, lines.append)
        return tmp_path / "README.md", lines

    return call


def test_a_card_that_nobody_edited_is_renewed(write):
    path, lines = write()
    assert lines == []
    first = path.read_text()
    data = ModelCard(first).data
    assert data.model_name == path.parent.name
    assert data.eval_results[0].metric_value == 0.9
    path.write_text(first.replace("An [ALBERT]", "My [ALBERT]"))
    edited = path.read_text()
    _, lines = write()
    assert path.read_text() == edited
    assert lines == [f"{path} was edited, and stays as it is."]
    path.write_text(first)
    assert write() == (path, [])


def test_what_fails_is_a_line(write):
    def fail():
        raise MemoryError("too large")

    path, lines = write(fail)
    assert not path.exists()
    assert lines == [
        f"WARNING: {path} was not written (MemoryError: too large); the model "
        "is complete."
    ]
