"""Runs that resume with other settings, or for longer than planned."""

import json
import shutil

import numpy as np
import pytest
from pretraining_runs import (
    PowerCut,
    assert_same_run,
    cut_power,
    lines_of,
    run,
    weights_of,
)

from albert_tf.config import RuntimeConfig
from albert_tf.training import run_state

LONGER = RuntimeConfig(extend_to_steps=20)


@pytest.fixture(scope="module")
def extended_run(finished, small_config, shards_dir, tmp_path_factory):
    """The finished run of 12 steps, extended to 20."""
    run_dir = tmp_path_factory.mktemp("runs") / "extended"
    shutil.copytree(finished[0], run_dir)
    run(small_config, shards_dir, run_dir, runtime=LONGER)
    return run_dir


@pytest.mark.slow
def test_an_extended_run_has_the_schedule_of_its_new_length(
    extended_run, finished
):
    before, after = lines_of(finished[0]), lines_of(extended_run)
    assert after[: len(before)] == before
    # A peak of 0.01 after 2 steps of warm-up; a linear decay over the 18 that
    # are left, the first of which has the whole rate.
    expected = [
        (12, 0.01 * (1 - 9 / 10)),
        (15, 0.01 * (1 - 12 / 18)),
        (20, 0.01 * (1 - 17 / 18)),
    ]
    found = [(x["step"], x["learning_rate"]) for x in after[-3:]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    written = json.loads((extended_run / "config.json").read_text())
    assert written["config"]["training"]["num_train_steps"] == 20
    assert written["changes"] == [
        {"after_step": 12, "settings": {"num_train_steps": [12, 20]}}
    ]


@pytest.mark.slow
def test_a_killed_extension_is_the_same_extension(
    extended_run, finished, start_run, tmp_path, monkeypatch, capsys
):
    run_dir = tmp_path / "run"
    shutil.copytree(finished[0], run_dir)

    def record_changes(*_):
        raise PowerCut

    with monkeypatch.context() as patch, pytest.raises(PowerCut):
        patch.setattr(run_state, "record_changes", record_changes)
        start_run(LONGER)
    # The command without the flag does not continue the extension.
    assert start_run() == finished[1]
    with monkeypatch.context() as patch, pytest.raises(PowerCut):
        cut_power(patch, after=6)
        start_run(LONGER)
    assert (
        "The schedule is now that of 20 steps: the learning rate was 0.001 at "
        "step 12, is 0.004444 at step 13 and 0.0005556 at step 20."
    ) in capsys.readouterr().out
    start_run(LONGER)
    assert_same_run(run_dir, extended_run)


@pytest.mark.slow
def test_an_extended_run_has_new_patience(fake_run, capsys):
    """All evaluations are equal."""
    changes = {"eval_steps": 2, "early_stopping_patience": 1}
    fake_run(**changes)
    assert "the run ends at step 4." in capsys.readouterr().out
    fake_run(LONGER, **changes)
    assert "the run ends at step 6." in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_resumes_with_other_settings(
    finished, start_run, tmp_path, capsys
):
    run_dir = tmp_path / "run"
    shutil.copytree(finished[0], run_dir)
    (run_dir / "checkpoints/step-12").unlink()
    start_run(
        eval_steps=3,
        keep_checkpoint_max=1,
        log_steps=2,
        max_loss_spike=100.0,
        micro_batch_size=3,
        remat="full",
        save_checkpoints_steps=5,
        steps_per_loop=2,
    )
    printed = capsys.readouterr().out
    assert "From step 9 on: " in printed
    assert "eval_steps=3 (before: 6)" in printed
    assert "best_model and early stopping depend on eval_steps" in printed
    assert [x["step"] for x in lines_of(run_dir)] == [5, 10, 12]
    assert [x["step"] for x in lines_of(run_dir, "eval")] == [6, 9, 12]
    expected = weights_of(finished[0])
    for path, value in weights_of(run_dir).items():
        np.testing.assert_allclose(
            value, expected[path], rtol=1e-3, atol=1e-5, err_msg=path
        )
