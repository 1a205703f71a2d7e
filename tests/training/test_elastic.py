"""One run on one replica, then on two, then on one."""

import shutil

import pytest
from pretraining_runs import after_calls, lines_of, run, terminate

from albert_tf.cluster.stops import RunStopped
from albert_tf.config import RuntimeConfig, override


@pytest.mark.slow
def test_a_run_resumes_with_another_number_of_replicas(
    small_config, shards_dir, tmp_path, monkeypatch
):
    """The same records at every step, and the same losses; dropout is on."""
    # Two replicas do not divide the batch.
    config = override(
        small_config,
        {
            "train_batch_size": 7,
            "log_steps": 1,
            "num_hidden_layers": 1,
            "keep_checkpoint_max": 3,
        },
    )

    def train(name, **runtime):
        runtime = RuntimeConfig(**runtime)
        run(config, shards_dir, tmp_path / name, runtime=runtime)

    train("whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "moved")
    # The first six steps are those of one replica.
    for step in (8, 12):
        (tmp_path / f"moved/checkpoints/step-{step}").unlink()
    with monkeypatch.context() as patch:
        after_calls(4, terminate, patch.setattr)
        with pytest.raises(RunStopped, match="saved at step 10;"):
            train("moved", strategy="mirrored", num_replicas=2)
    train("moved")
    expected, found = (
        lines_of(tmp_path / name, "train", "eval")
        for name in ("whole", "moved")
    )
    assert [line["step"] for line in found if line["split"] == "train"] == (
        list(range(1, 13))
    )
    for one, other in zip(found, expected, strict=True):
        losses = [name for name in other if name.endswith("loss")]
        assert "masked_lm_loss" in losses and "sentence_order_loss" in losses
        for name in losses:
            assert one[name] == pytest.approx(other[name], rel=1e-6), name
        for name in ("step", "split", "records_crc32"):
            assert one.get(name) == other.get(name)
