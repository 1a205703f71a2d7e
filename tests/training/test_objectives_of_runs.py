"""Runs on shards of each sentence objective."""

import json
import re

import pytest
from pretraining_runs import lines_of, run
from program_runner import run_program

from albert_tf.config import UserError, override
from albert_tf.interchange.model_directory import find_initial_weights
from albert_tf.jobs.pretrain import run_pretraining


@pytest.fixture(scope="module")
def small_config(small_config):
    """With one layer, which is traced sooner."""
    return override(small_config, {"num_hidden_layers": 1})


@pytest.mark.slow
def test_single_segments(small_config, single_segments, tmp_path, capsys):
    evaluation = run(small_config, single_segments, tmp_path / "run")
    printed = capsys.readouterr().out
    assert "objective none: single segments, masked LM alone" in printed
    lines = lines_of(tmp_path / "run", "train", "eval")
    for name in {*evaluation, *(name for line in lines for name in line)}:
        assert not re.search("sentence|order", name)
    assert "masked_lm_loss" in lines_of(tmp_path / "run")[-1]
    evaluated = run_program(
        "evaluate",
        "--task=pretraining",
        f"--data_dir={single_segments}",
        f"--model_dir={tmp_path}/run/model",
        f"--output_dir={tmp_path}/evaluation",
    )
    assert re.search(r"\nsentence objective +none", evaluated.stdout)
    metrics = json.loads((tmp_path / "evaluation/metrics.json").read_text())
    assert set(metrics) >= set(evaluation)
    assert not any("sentence" in name for name in metrics)


@pytest.mark.slow
def test_training_continues_with_another_objective(
    small_config, single_segments, next_sentences, tmp_path
):
    config = override(small_config, {"num_train_steps": 1})
    run(config, single_segments, tmp_path / "single")
    initial = find_initial_weights(str(tmp_path / "single"))
    config = override(config, {"sentence_objective": "nsp"})
    evaluation = run(config, next_sentences, tmp_path / "next", initial=initial)
    assert "next_sentence_accuracy" in evaluation
    assert "majority_next_sentence_accuracy" in evaluation
    assert not any("order" in name for name in evaluation)


def test_held_out_shards_of_another_objective(
    small_config, shards_dir, next_sentences, tmp_path
):
    with pytest.raises(UserError, match="=nsp; a run needs shards of one: "):
        run_pretraining(
            small_config,
            train_data=[shards_dir],
            eval_data=[next_sentences],
            run_dir=str(tmp_path / "run"),
        )
    assert not (tmp_path / "run").exists()
