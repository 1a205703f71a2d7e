"""The largest micro-batch that fits is found in few tries."""

import dataclasses
import itertools
import json
import math

import pytest
import tensorflow as tf
from training_fixtures import SMALL_MODEL

from albert_tf.cluster.distribution import make_strategy
from albert_tf.config import (
    ModelConfig,
    OptimizerConfig,
    RuntimeConfig,
    TrainingConfig,
    UserError,
    override,
)
from albert_tf.jobs import micro_batch
from albert_tf.jobs.micro_batch import largest_micro_batch, resolve_micro_batch
from albert_tf.jobs.training_probe import make_probe
from albert_tf.jobs.workload import Workload

TWO = RuntimeConfig(strategy="mirrored", num_replicas=2)
ALONE = tf.distribute.get_strategy()


def work(batch_size=6, micro_batch_size="auto"):
    return Workload(
        model=override(ModelConfig(), SMALL_MODEL | {"vocab_size": 60}),
        batch_size=batch_size,
        seq_length=16,
        num_predictions=3,
        training=override(
            TrainingConfig(), {"micro_batch_size": micro_batch_size}
        ),
    )


def tries(batch_size, limit, base=100, each=10):
    """Returns what is found on a machine whose peaks are a line."""
    tried = []

    def peak_of(size):
        tried.append(size)
        peak = base + each * size
        return peak if peak <= 1.3 * limit else math.inf

    return largest_micro_batch(batch_size, limit, peak_of), tried


@pytest.mark.parametrize(
    ("batch_size", "limit", "expected"),
    [(32, 1e9, 32), (32, 270, 16), (32, 259, 11), (7, 145, 4), (1, 110, 1)],
)
def test_the_largest_part_that_fits(batch_size, limit, expected):
    found, tried = tries(batch_size, limit)
    assert found == expected
    assert len(tried) <= 5
    # Never far beyond what is known to fit.
    assert all(b <= max(4, 16 * a) for a, b in itertools.pairwise(tried))


def test_the_largest_part_where_peaks_are_no_line():
    assert largest_micro_batch(64, 1000, lambda n: 100 + n * n) == 22
    sizes = []

    def peak_of(size):
        sizes.append(size)
        return 1.0 if size <= 37 else math.inf

    assert largest_micro_batch(512, math.inf, peak_of) == 37
    assert len(sizes) <= 10


def test_not_even_one():
    with pytest.raises(UserError, match="one sequence already needs 2 MiB"):
        largest_micro_batch(8, 2**20, lambda size: 2 * 2**20)


def test_numbers_of_the_setting_and_of_the_run_need_no_trial(tmp_path):
    assert resolve_micro_batch(ALONE, str(tmp_path), work(6, 3)) == 3
    config = {"config": {"training": {"micro_batch_size": 5}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert resolve_micro_batch(ALONE, str(tmp_path), work()) == 5


@pytest.mark.slow
def test_trials_run_in_other_processes(tmp_path, capsys):
    size = resolve_micro_batch(ALONE, str(tmp_path), work(2))
    assert size == 2
    output = capsys.readouterr().out
    assert "Micro-batch of 1: " in output
    assert "micro_batch_size=2 of 2, within " in output
    with pytest.raises(
        RuntimeError, match="batch of 1 ended with exit status 1: "
    ):
        micro_batch._peak_in_a_process(
            dataclasses.replace(work(), seq_length=99), 1, 1
        )


def test_the_optimizer_of_the_run_is_tried():
    """With its moving average, which is as large as the weights."""
    config = OptimizerConfig(
        optimizer="adamw", ema_decay=0.9, freeze="classifier", layer_decay=0.5
    )
    given = dataclasses.replace(work(), optimizer=config)
    trial = micro_batch._trial(given, size=3, batch_size=6)
    # Two micro-batches, whose gradients are added.
    assert trial.batch_size == 6
    trainer = make_probe(trial)
    weights = sum(w.value.shape.num_elements() for w in trainer.model.weights)
    held = sum(v.shape.num_elements() for v in trainer.variables().values())
    # Weights, two moments, the average; and a few counters.
    assert 4 * weights <= held <= 4 * weights + 10


def test_replicas_share_the_memory(tmp_path, monkeypatch):
    limits = []

    def found(batch_size, limit, peak_of):
        limits.append((batch_size, limit))
        return 1

    monkeypatch.setattr(micro_batch, "largest_micro_batch", found)
    monkeypatch.setattr(micro_batch, "free_memory", lambda: 1000)
    for strategy in (ALONE, make_strategy(TWO)):
        assert resolve_micro_batch(strategy, str(tmp_path), work()) == 1
    assert limits == [(6, 800), (3, 400)]
