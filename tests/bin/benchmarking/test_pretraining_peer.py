"""The peer's pretraining reads our batches and is evaluated as ours is."""

import collections
import importlib.util
import json

import numpy as np
import pytest
import tensorflow as tf
from pretraining_runs import compile_nothing, run
from program_runner import run_program

from albert_tf.config import UserError, override, to_dict
from albert_tf.experiments import recipe
from albert_tf.jobs.evaluate import evaluate_pretraining
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.training import loop
from albert_tf.training.evaluator import Evaluator
from albert_tf.training.training_loss import pretraining_loss
from bin.benchmarking import pretraining_peer
from bin.benchmarking.transformers_peer import (
    albert_for_pretraining,
    pretraining_inputs,
)

needs_transformers = pytest.mark.skipif(
    any(importlib.util.find_spec(p) is None for p in ("torch", "transformers")),
    reason="transformers is not installed",
)


@pytest.fixture
def config(small_config):
    changes = {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "optimizer": "adamw",
        "num_train_steps": 6,
        "eval_batch_size": 8,
        "max_eval_steps": 3,
        "eval_steps": 3,
        "log_steps": 3,
    }
    return override(small_config, changes)


def test_a_peer_reads_the_batches_of_our_run(
    config, shards_dir, tmp_path, monkeypatch
):
    compile_nothing(monkeypatch)
    steps = loop.Trainer.train_steps
    read = []

    def train_steps(self, batches, *args, **options):
        read.extend(batches)
        return steps(self, batches, *args, **options)

    monkeypatch.setattr(loop.Trainer, "train_steps", train_steps)
    run(config, shards_dir, tmp_path / "run")
    source = pretraining_peer.batches(config, shards_dir, "train")
    assert len(read) == 6
    for step, ours in enumerate(read):
        theirs = source.batch(step)
        for name, value in ours.items():
            np.testing.assert_array_equal(theirs[name], value)


def test_labels_are_at_the_predicted_positions():
    batch = collections.defaultdict(
        lambda: np.ones((1, 4), np.int32),
        masked_lm_positions=np.array([[1, 0]]),
        masked_lm_ids=np.array([[9, 0]]),
        masked_lm_weights=np.array([[1, 0]]),
    )
    labels = pretraining_inputs(batch)["labels"]
    assert labels.tolist() == [[-100, 9, -100, -100]]


@needs_transformers
def test_a_peer_trains_and_logs_every_evaluation(
    config, shards_dir, tmp_path, monkeypatch
):
    monkeypatch.setattr("torch.compile", lambda model: model)
    settings = tmp_path / "run.json"
    recorded = {"job": "pretrain", "config": to_dict(config)}
    settings.write_text(json.dumps(recorded))
    done = run_program(
        "benchmarking.pretraining_peer",
        f"--config_json={settings}",
        f"--train_data={shards_dir}",
        f"--eval_data={shards_dir}",
        f"--run_dir={tmp_path / 'run'}",
    )
    assert done.status == 0, (done.error, done.stderr)
    curve = recipe.read_curve(str(tmp_path / "run"), config)
    assert [point.metrics["step"] for point in curve] == [3, 6]
    cost = recipe.flops_per_step(config, 32, 2, 0.15)
    assert [point.flops for point in curve] == pytest.approx(
        [3 * cost, 6 * cost]
    )
    assert curve[1].metrics["loss"] < curve[0].metrics["loss"]


def test_settings_that_are_not_of_a_run_are_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    done = run_program(
        "benchmarking.pretraining_peer",
        f"--config_json={tmp_path}/config.json",
        *("--train_data=a", "--eval_data=b", f"--run_dir={tmp_path}/run"),
    )
    assert "is not the config.json of a pretrain run" in done.error


@needs_transformers
def test_an_evaluation_of_the_peer_is_ours(config, shards_dir, tmp_path):
    theirs = albert_for_pretraining(config.model, "sdpa")
    theirs.save_pretrained(tmp_path)
    batches = pretraining_peer.batches(config, shards_dir, "eval")
    ours = Evaluator(
        AlbertForPretraining.from_pretrained(str(tmp_path)),
        pretraining_loss(SENTENCE_OBJECTIVES["sop"]),
        strategy=tf.distribute.get_strategy(),
    )
    expected = evaluate_pretraining(ours, batches, 3)
    metrics = pretraining_peer.evaluate(theirs, batches, 3)
    assert metrics == pytest.approx(
        {name: expected[name] for name in metrics}, rel=1e-5
    )


@pytest.fixture
def any_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


@pytest.mark.usefixtures("any_package")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": "muon"}, r"optimizer=muon \(expected adamw\)\."),
        ({"sharing": "none"}, "share all weights .*; got sharing=none, "),
        ({"precision": "float16"}, "got sharing=all, precision=float16"),
        *(
            ({name: value}, f"equal of {name}={value} \\(expected ")
            for name, value in {
                "depth_schedule": "0:1,3:2",
                "masking_schedule": "0:0.4",
                "ngram_schedule": "0:1",
                "sentence_loss_weight": 0.3,
                "learning_rate_decay": "constant",
                "decay_power": 2.0,
                "end_learning_rate": 1e-5,
                "original_schedule": True,
                "layer_decay": 0.9,
                "freeze": "encoder",
                "exclude_from_weight_decay": "bias",
                "ema_decay": 0.99,
                "output_init_scale": 0.5,
                "position_init": "sinusoidal",
                "phases": "3,3",
                "phase_batch_sizes": "8,8",
                "early_stopping_patience": 1,
                "max_loss_spike": 6.0,
            }.items()
        ),
    ],
    ids=str,
)
def test_settings_without_an_equal_in_the_peer(config, change, message):
    pretraining_peer.check(config)
    with pytest.raises(UserError, match=message):
        pretraining_peer.check(override(config, change))


@pytest.mark.usefixtures("any_package")
@pytest.mark.parametrize("name", recipe.PEERS)
def test_the_peers_of_the_record_are_compared(name):
    candidate, size = recipe.PEERS[name], {"vocab_size": 300, "seq_length": 32}
    pretraining_peer.check(
        recipe.configuration(candidate, flops=1e12, seed=1, **size)
    )


def test_shards_of_another_objective_are_refused(config, shards_dir):
    changed = override(config, {"sentence_objective": "nsp"})
    with pytest.raises(UserError, match="comparison is of .*_objective=sop"):
        pretraining_peer.batches(changed, shards_dir, "train")
