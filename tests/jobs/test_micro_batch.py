"""`micro_batch_size=auto`: the largest micro-batch that fits, by formula."""

import json

import pytest
import tensorflow as tf

from albert_tf.cluster.distribution import make_strategy
from albert_tf.config import (
    PretrainConfig,
    RuntimeConfig,
    TrainingConfig,
    UserError,
    override,
    preset,
)
from albert_tf.jobs import micro_batch
from albert_tf.jobs.micro_batch import (
    example_bytes,
    largest_micro_batch,
    with_micro_batch_size,
)

BASE = override(PretrainConfig(), preset("base"))
ALONE = tf.distribute.get_strategy()


@pytest.mark.parametrize(
    ("batch_size", "limit", "expected"),
    [(32, 1e9, 32), (32, 17.9, 16), (32, 15.9, 11), (7, 4.5, 4), (1, 1.0, 1)],
)
def test_the_largest_part_that_fits(batch_size, limit, expected):
    assert largest_micro_batch(batch_size, limit) == expected


@pytest.mark.parametrize(
    ("seq_length", "remat", "precision", "kilobytes"),
    [
        (128, "none", "bfloat16", 303),
        (128, "full", "bfloat16", 106),
        (128, "none", "float32", 561),
        (128, "full", "float32", 168),
        (512, "none", "bfloat16", 414),
        (512, "full", "bfloat16", 125),
        # The weights of 512 queries, once.
        (1024, "none", "float32", 512),
    ],
)
def test_the_formula_of_the_documents(seq_length, remat, precision, kilobytes):
    """The bytes of a token, with 15 % of the tokens masked."""
    training = TrainingConfig(remat=remat, precision=precision)
    masked = 0.15 * seq_length
    model = BASE.model
    size = example_bytes(
        model, training, seq_length=seq_length, num_predictions=masked
    )
    assert size / seq_length / 1000 == pytest.approx(kilobytes, abs=0.5)
    choices = example_bytes(model, training, seq_length=seq_length, choices=4)
    assert choices < 4 * size


def resolved(run_dir, setting="auto", strategy=ALONE, batch_size=6):
    config = override(BASE, {"micro_batch_size": setting})
    found = with_micro_batch_size(
        config,
        strategy,
        str(run_dir),
        config.model,
        batch_size=batch_size,
        seq_length=128,
        num_predictions=20,
    )
    return found.training.micro_batch_size


def test_numbers_of_the_setting_and_of_the_run_are_kept(tmp_path):
    assert resolved(tmp_path, 3) == 3
    config = {"config": {"training": {"micro_batch_size": 5}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert resolved(tmp_path) == 5


def test_replicas_share_the_memory(tmp_path, monkeypatch, capsys):
    two = make_strategy(RuntimeConfig(strategy="mirrored", num_replicas=2))
    monkeypatch.setattr(micro_batch, "free_memory", lambda: 4 * 2**30)
    alone = resolved(tmp_path, batch_size=64)
    line = capsys.readouterr().out
    assert line.startswith(f"micro_batch_size={alone} of 64: ")
    assert line.endswith(" of 3277 MiB, by formula.\n")
    assert resolved(tmp_path, strategy=two, batch_size=64) < alone
    monkeypatch.setattr(micro_batch, "free_memory", lambda: 2**30)
    with pytest.raises(UserError, match="one example needs .* --remat=full"):
        resolved(tmp_path)
