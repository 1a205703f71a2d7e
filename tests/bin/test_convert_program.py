"""The program that converts, as users start it."""

import keras
import numpy as np
from program_runner import run_program
from training_fixtures import random_model

from albert_tf.config import override
from albert_tf.interchange.formats import FORMATS
from albert_tf.interchange.model_directory import (
    load_model_directory,
    save_model_directory,
)
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.modeling.weights.conversion import MERGES
from bin import convert


def test_every_flag_has_its_effect(tmp_path, tiny_tokenizer, tiny_directory):
    source, target = tmp_path / "source", tmp_path / "target"
    model = random_model("pretraining", max_position_embeddings=16)
    save_model_directory(str(source), model, tiny_tokenizer, max_seq_length=16)
    for name in ("spiece.model", "tokenizer.json"):
        (source / name).unlink()
    target.mkdir()
    (target / "model.weights.h5").write_text("of another form")
    done = run_program(
        "convert",
        f"--from_path={source}",
        f"--to_path={target}",
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
    lines = done.stdout.splitlines()
    assert lines[0].startswith("From the model directory "), done.stderr
    assert lines[1].startswith("Initialised: albert/classification/")
    assert lines[-1].endswith("model_directory, AlbertForClassification.")
    assert not (target / "model.weights.h5").exists()
    loaded = load_model_directory(str(target))
    assert loaded.labels == ["no", "yes"]
    assert loaded.model.config == override(
        model.config, {"sharing": "none", "max_position_embeddings": 32}
    )
    keras.utils.set_random_seed(7)
    fresh = AlbertForClassification(model.config, 2)
    np.testing.assert_array_equal(
        loaded.model.classification.classifier.kernel,
        fresh.classification.classifier.kernel,
    )


def test_the_flags_offer_what_the_library_knows():
    assert tuple(FORMATS) == convert.FORMATS
    assert tuple(MERGES) == convert.MERGES
