"""One run on one replica, then on four, then on two."""

import os
import signal
import subprocess
import sys

import pytest
from pretraining_runs import (
    ROOT,
    after_calls,
    flags_of,
    lines_of,
    run,
    terminate,
)

from albert_tf.cluster.stops import RunStopped
from albert_tf.config import RuntimeConfig, override

# In a process of its own, which divides the CPU into four devices.
STOPPED_PROGRAM = """
from bin import command_line, pretrain
from pretraining_runs import after_calls, terminate
after_calls(4, terminate)
command_line.run(pretrain.define_flags, pretrain.main)
"""


@pytest.mark.slow
def test_a_run_resumes_with_another_number_of_replicas(
    small_config, shards_dir, tmp_path, monkeypatch
):
    """The same records at every step, and the same losses; dropout is on."""
    # Not divisible by either number of replicas.
    config = override(
        small_config,
        {"train_batch_size": 7, "log_steps": 1, "num_hidden_layers": 1},
    )

    def train(name, **runtime):
        runtime = RuntimeConfig(**runtime)
        run(config, shards_dir, tmp_path / name, runtime=runtime)

    train("whole")
    with monkeypatch.context() as patch:
        after_calls(3, terminate, patch.setattr)
        with pytest.raises(RunStopped, match="SIGTERM: saved at step 3;"):
            train("moved")
    four = subprocess.run(
        [
            *(sys.executable, "-c", STOPPED_PROGRAM),
            *flags_of(config, shards_dir, tmp_path / "moved"),
            *("--strategy=mirrored", "--num_replicas=4"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"},
        capture_output=True,
        text=True,
    )
    assert four.returncode == 128 + signal.SIGTERM, four.stderr
    assert "Resuming from step 3" in four.stdout
    assert "saved at step 7;" in four.stderr
    train("moved", strategy="mirrored", num_replicas=2)
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
