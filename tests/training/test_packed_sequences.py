"""Pretraining with pack_sequences: the same run without its padding."""

import numpy as np
import pytest
from pretraining_runs import PowerCut, assert_same_run, cut_power, lines_of, run

from albert_tf.config import RuntimeConfig, override
from albert_tf.training import gradients
from albert_tf.training.gradients import token_capacities


@pytest.mark.parametrize("seq_length", [64, 512])
def test_less_than_2_percent_of_packed_tokens_are_padding(seq_length):
    """A third of the sequences full, the others between half and full."""
    rng = np.random.default_rng(1)
    drawn = rng.uniform(0.5, 1.25, (1064, 64)) * seq_length
    lengths = np.minimum(drawn.astype(int), seq_length)
    sampled, tokens = lengths[:64], lengths[64:].sum(axis=1)
    padded = 64 * seq_length
    assert 1 - tokens.mean() / padded > 0.1
    sizes = token_capacities(sampled, 64, seq_length)
    held = np.array([*sizes, padded])[np.searchsorted(sizes, tokens + 1)]
    assert np.all(held > tokens) and len(sizes) <= 4
    assert 1 - tokens.sum() / held.sum() < 0.02


@pytest.fixture(scope="module")
def packed(small_config):
    """One capacity, that of the mean: some batches keep their padding."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradients, "_DEVIATIONS", (0.0,))
        yield override(small_config, {"pack_sequences": True})


@pytest.fixture(scope="module")
def packed_run(packed, shards_dir, tmp_path_factory):
    """The directory of the packed run, and its last evaluation."""
    run_dir = tmp_path_factory.mktemp("runs") / "packed"
    return run_dir, run(packed, shards_dir, run_dir)


def assert_equal_lines(run_dir, expected_dir):
    ours, theirs = lines_of(run_dir), lines_of(expected_dir)
    for one, other in zip(ours, theirs, strict=True):
        assert one["records_crc32"] == other["records_crc32"]
        for name in ("masked_lm_loss", "sentence_order_loss"):
            assert one[name] == pytest.approx(other[name], rel=1e-5)


@pytest.mark.slow
def test_a_packed_run_is_the_padded_run(packed_run, finished):
    assert packed_run[1] == pytest.approx(finished[1], rel=1e-4)
    assert_equal_lines(packed_run[0], finished[0])


@pytest.mark.slow
def test_packed_micro_batches_of_replicas_are_the_padded_run(
    packed, finished, shards_dir, tmp_path
):
    run(
        override(packed, {"micro_batch_size": 2, "xla": True}),
        shards_dir,
        tmp_path / "run",
        runtime=RuntimeConfig(strategy="mirrored", num_replicas=2),
    )
    assert_equal_lines(tmp_path / "run", finished[0])


@pytest.mark.slow
def test_a_killed_packed_run_is_the_same_run(
    packed, packed_run, shards_dir, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch, pytest.raises(PowerCut):
        cut_power(patch, after=7)
        run(packed, shards_dir, tmp_path / "run")
    run(packed, shards_dir, tmp_path / "run")
    assert_same_run(tmp_path / "run", packed_run[0])
