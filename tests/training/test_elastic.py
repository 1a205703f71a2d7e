"""One run on one replica, then on two, then on one again."""

import os
import signal

import pytest
from pretraining_runs import lines_of, run

from albert_tf.cluster.stops import RunStopped
from albert_tf.config import RuntimeConfig, override
from albert_tf.training import loop


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_replicas(
    small_config, shards_dir, tmp_path, monkeypatch
):
    """The same records at every step, and the same losses; dropout is on."""
    # Rows that two replicas cannot share evenly.
    config = override(
        small_config,
        {
            "train_batch_size": 7,
            "num_train_steps": 6,
            "num_hidden_layers": 1,
            "log_steps": 1,
        },
    )

    def stopped_after(last_step, **runtime):
        plain_after = loop.Profiler.after

        def after(profiler, step):
            plain_after(profiler, step)
            if step == last_step:
                os.kill(os.getpid(), signal.SIGTERM)

        with monkeypatch.context() as patch:
            patch.setattr(loop.Profiler, "after", after)
            with pytest.raises(RunStopped, match=f"at step {last_step};"):
                moved(**runtime)

    def moved(**runtime):
        runtime = RuntimeConfig(**runtime)
        run(config, shards_dir, tmp_path / "moved", runtime=runtime)

    run(config, shards_dir, tmp_path / "whole")
    stopped_after(2)
    stopped_after(4, strategy="mirrored", num_replicas=2)
    moved()
    for split, steps in (("train", [1, 2, 3, 4, 5, 6]), ("eval", [6])):
        found = lines_of(tmp_path / "moved", split)
        assert [line["step"] for line in found] == steps
        for one, other in zip(
            found, lines_of(tmp_path / "whole", split), strict=True
        ):
            assert one.get("records_crc32") == other.get("records_crc32")
            for name in ("masked_lm_loss", "sentence_order_loss"):
                assert one[name] == pytest.approx(other[name], rel=1e-6)
