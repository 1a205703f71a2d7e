"""The peer's pretraining reads our batches and is evaluated as ours is."""

import collections
import importlib.util

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import override, to_dict
from albert_tf.jobs.evaluate import evaluate_pretraining
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.training.evaluator import Evaluator
from albert_tf.training.training_loss import pretraining_loss
from experiments.programs import pretraining_peer
from experiments.programs.transformers_albert import (
    albert_of_transformers,
    inputs_of_transformers,
)
from experiments.units import KINDS, Job, Unit

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


def test_labels_are_at_the_predicted_positions():
    batch = collections.defaultdict(
        lambda: np.ones((1, 4), np.int32),
        masked_lm_positions=np.array([[1, 0]]),
        masked_lm_ids=np.array([[9, 0]]),
        masked_lm_weights=np.array([[1, 0]]),
    )
    labels = inputs_of_transformers(batch)["labels"]
    assert labels.tolist() == [[-100, 9, -100, -100]]


@needs_transformers
def test_a_peer_trains_and_has_a_curve(config, directory, monkeypatch):
    monkeypatch.setattr("torch.compile", lambda model: model)
    settings = {"config": to_dict(config)}
    unit = Unit("peer", settings, {"shards": Unit("shards", {})})
    job = Job(unit, directory)
    _, *arguments = KINDS["peer"].command(job)
    pretraining_peer.main(*arguments)
    figures = KINDS["peer"].figures(job)
    first, last = figures["curve"]
    assert [first["step"], last["step"]] == [3, 6]
    assert last["masked_lm_loss"] < first["masked_lm_loss"]
    assert figures["sequences_per_second"] > 0


@needs_transformers
def test_an_evaluation_of_the_peer_is_ours(config, shards_dir, tmp_path):
    theirs = albert_of_transformers(config.model, "sdpa")
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
