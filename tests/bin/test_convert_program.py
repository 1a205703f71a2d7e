"""The program that converts, as users start it."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from albert_tf.config import ModelConfig, override
from albert_tf.interchange.formats import FORMATS
from albert_tf.interchange.model_directory import (
    load_model_directory,
    save_model_directory,
)
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
)
from albert_tf.modeling.weights.conversion import MERGES
from bin import convert

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ModelConfig(
    vocab_size=200,
    embedding_size=4,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=16,
)


def run(*given, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "bin.convert", *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.fixture
def source(tmp_path, tiny_tokenizer):
    directory = str(tmp_path / "source")
    model = AlbertForPretraining(TINY)
    save_model_directory(directory, model, tiny_tokenizer, max_seq_length=16)
    return directory


def test_every_flag_has_its_effect(tmp_path, source, tiny_directory):
    for name in ("spiece.model", "tokenizer.json"):
        os.remove(f"{source}/{name}")
    place = str(tmp_path / "target")
    pathlib.Path(place).mkdir()
    pathlib.Path(place, "model.weights.h5").write_text("of another form")
    printed = run(
        f"--from_path={source}",
        f"--to_path={place}",
        "--to_format=model_directory",
        "--head=classification",
        "--labels=no,yes",
        f"--tokenizer={tiny_directory}",
        "--merge=first",
        "--allow_missing",
        "--seed=7",
        "--overwrite",
        "--sharing=none",
        "--max_position_embeddings=32",
    )
    lines = printed.splitlines()
    assert not pathlib.Path(place, "model.weights.h5").exists()
    assert lines[0].startswith("From the model directory ")
    assert lines[1].startswith("Initialised: albert/classification/")
    assert any("16 rows, repeated until there are 32" in s for s in lines)
    assert lines[-1].endswith(
        "/target: model_directory, AlbertForClassification."
    )
    loaded = load_model_directory(place)
    assert loaded.labels == ["no", "yes"]
    assert loaded.model.config == override(
        TINY, {"sharing": "none", "max_position_embeddings": 32}
    )
    keras.utils.set_random_seed(7)
    fresh = AlbertForClassification(TINY, 2)
    np.testing.assert_array_equal(
        loaded.model.classification.classifier.kernel,
        fresh.classification.classifier.kernel,
    )


def test_the_flags_offer_what_the_library_knows():
    assert tuple(FORMATS) == convert.FORMATS
    assert MERGES == convert.MERGES


def test_a_mistake_is_one_line_and_nothing_is_written(tmp_path, source):
    os.truncate(f"{source}/model.safetensors", 1000)
    target = tmp_path / "target"
    said = run(
        f"--from_path={source}",
        f"--to_path={target}",
        "--to_format=huggingface",
        status=1,
    )
    (line,) = said.splitlines()
    assert line.startswith(f"convert: {source}/model.safetensors is not a read")
    assert not target.exists()
