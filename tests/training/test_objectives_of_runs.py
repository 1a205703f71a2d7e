"""Runs on shards of each sentence objective."""

import contextlib
import io
import re

import pytest
from pretraining_runs import lines_of, run

from albert_tf.config import UserError, override
from albert_tf.interchange.model_directory import find_initial_weights
from albert_tf.jobs.evaluate import evaluate_pretrained
from albert_tf.jobs.pretrain import run_pretraining
from albert_tf.jobs.pretraining_phases import PretrainingShards
from bin.show_results import results_table


@pytest.fixture(scope="module")
def small_config(small_config):
    """Settings with one layer, which is traced sooner."""
    return override(small_config, {"num_hidden_layers": 1})


@pytest.fixture(scope="module")
def single(small_config, single_segments, tmp_path_factory):
    """A run on single segments, its evaluation and what it printed."""
    run_dir, printed = tmp_path_factory.mktemp("runs") / "single", io.StringIO()
    with contextlib.redirect_stdout(printed):
        evaluation = run(small_config, single_segments, run_dir)
    return run_dir, evaluation, printed.getvalue()


@pytest.mark.slow
def test_single_segments(small_config, single_segments, single):
    run_dir, evaluation, printed = single
    assert "objective none: single segments, masked LM alone" in printed
    lines = lines_of(run_dir, "train", "eval")
    for name in {*evaluation, *(name for line in lines for name in line)}:
        assert not re.search("sentence|order", name)
    assert "masked_lm_loss" in lines_of(run_dir)[-1]
    metrics = evaluate_pretrained(
        f"{run_dir}/model",
        single_segments,
        split="eval",
        batch_size=16,
        seed=small_config.training.seed,
    )
    assert metrics == pytest.approx(evaluation, rel=1e-5)
    table = results_table({"run": metrics})
    assert re.search(r"\nsentence objective +none", table)


@pytest.mark.slow
def test_training_continues_with_another_objective(
    small_config, single, next_sentences, tmp_path
):
    initial = find_initial_weights(str(single[0]))
    changes = {"num_train_steps": 1, "sentence_objective": "nsp"}
    config = override(small_config, changes)
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
            PretrainingShards([shards_dir], [next_sentences]),
            run_dir=str(tmp_path / "run"),
        )
    assert not (tmp_path / "run").exists()
