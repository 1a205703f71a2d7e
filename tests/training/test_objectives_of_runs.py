"""Runs on shards of each sentence objective."""

import json
import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
from pretraining_runs import run, weights_of

from albert_tf.config import UserError, override
from albert_tf.interchange.model_directory import find_initial_weights
from albert_tf.jobs.pretrain import run_pretraining
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.training import loop


@pytest.fixture(scope="module")
def small_config(small_config):
    """With one layer, which is traced sooner."""
    return override(small_config, {"num_hidden_layers": 1})


@pytest.mark.slow
def test_single_segments(small_config, single_segments, tmp_path, capsys):
    evaluation = run(small_config, single_segments, tmp_path / "run")
    printed = capsys.readouterr().out
    assert "objective none: single segments, masked LM alone" in printed
    lines = [
        json.loads(line)
        for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    for name in {*evaluation, *(name for line in lines for name in line)}:
        assert not re.search("sentence|order", name)
    steps = [line for line in lines if line["split"] == "train"]
    assert "masked_lm_loss" in steps[-1]
    # Nothing has trained the head, and it is there, as it began.
    keras.utils.set_random_seed(small_config.training.seed)
    fresh = AlbertForPretraining(small_config.model).sentence_order
    trained = weights_of(tmp_path / "run")
    assert np.std(trained[fresh.classifier.kernel.path]) > 0
    for variable in fresh.trainable_variables:
        np.testing.assert_array_equal(trained[variable.path], variable)
    evaluated = subprocess.run(
        [
            *(sys.executable, "-m", "bin.evaluate", "--task=pretraining"),
            f"--data_dir={single_segments}",
            f"--model_dir={tmp_path}/run/model",
            f"--output_dir={tmp_path}/evaluation",
        ],
        cwd=os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.search(r"\nsentence objective +none", evaluated)
    metrics = json.loads((tmp_path / "evaluation/metrics.json").read_text())
    assert not any("sentence" in name for name in metrics)
    assert "masked_lm_accuracy" in metrics


@pytest.mark.slow
def test_training_continues_with_another_objective(
    small_config, single_segments, next_sentences, tmp_path
):
    config = override(small_config, {"num_train_steps": 1})
    run(config, single_segments, tmp_path / "single")
    initial = find_initial_weights(str(tmp_path / "single"))
    evaluation = run(config, next_sentences, tmp_path / "next", initial=initial)
    assert "next_sentence_accuracy" in evaluation
    assert not any("order" in name for name in evaluation)


def test_held_out_shards_of_another_objective(
    small_config, shards_dir, next_sentences, tmp_path
):
    message = (
        f"{shards_dir} was built with sentence_objective=sop and "
        f"{next_sentences} with sentence_objective=nsp; a run needs shards "
        "of one: build both with the same --sentence_objective."
    )
    with pytest.raises(UserError, match=re.escape(message)):
        run_pretraining(
            small_config,
            train_data=[shards_dir],
            eval_data=[next_sentences],
            run_dir=str(tmp_path / "run"),
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("expected", "found"),
    [("nsp", "sop"), ("none", "sop"), ("sop", "nsp"), ("sop", "none")],
)
def test_shards_of_an_unexpected_objective(
    expected, found, small_config, request, tmp_path
):
    shards = {"sop": "shards_dir", "nsp": "next_sentences"}
    directory = request.getfixturevalue(shards.get(found, "single_segments"))
    message = (
        f"{directory} was built with sentence_objective={found}, and this run "
        f"is to learn sentence_objective={expected}: build its shards by "
        "python -m bin.build_pretraining_data --sentence_objective="
        f"{expected}, or give this run --sentence_objective={found}."
    )
    config = override(small_config, {"sentence_objective": expected})
    with pytest.raises(UserError) as raised:
        run(config, directory, tmp_path / "run")
    assert str(raised.value) == message
    assert not (tmp_path / "run").exists()


def test_shards_of_the_expected_objective(
    small_config, next_sentences, tmp_path, monkeypatch
):
    class Reached(Exception):
        pass

    def claim(run_dir, description, *, extends):
        settings = description["config"]["pretraining"]
        assert settings["sentence_objective"] == "nsp"
        raise Reached

    monkeypatch.setattr(loop, "claim", claim)
    config = override(small_config, {"sentence_objective": "nsp"})
    with pytest.raises(Reached):
        run(config, next_sentences, tmp_path / "run")
