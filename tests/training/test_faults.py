"""What ends, stops or damages a run, and how it goes on."""

import errno
import json
import os
import shutil
import signal
import threading
import time
import zlib

import numpy as np
import pytest
from pretraining_runs import PowerCut, cut_power, lines_of, run, weights_of

from albert_tf.cluster.stops import RunStopped
from albert_tf.config import RuntimeConfig, UserError, override
from albert_tf.inputs import input_pipeline
from albert_tf.inputs.input_pipeline import PretrainingBatches
from albert_tf.inputs.phases import Phases
from albert_tf.io import files
from albert_tf.jobs import pretrain
from albert_tf.records.shards import open_shards
from albert_tf.rundir.checkpoints import SaveFailed
from albert_tf.training import loop


@pytest.mark.slow
@pytest.mark.parametrize("after", [3, 7, 11, 12])
def test_interrupted_and_resumed_is_the_same_run(
    after, finished, small_config, shards_dir, tmp_path, monkeypatch
):
    whole, evaluation = finished
    run_dir = tmp_path / "cut"
    with monkeypatch.context() as patch:
        cut_power(patch, after)
        with pytest.raises(PowerCut):
            run(small_config, shards_dir, run_dir)
    assert not (run_dir / "model").exists()
    assert (run_dir / "best_model").exists() == (after > 6)
    assert run(small_config, shards_dir, run_dir) == evaluation
    assert (run_dir / "metrics.jsonl").read_text() == (
        whole / "metrics.jsonl"
    ).read_text()
    expected = weights_of(whole)
    for path, value in weights_of(run_dir).items():
        np.testing.assert_array_equal(value, expected[path], err_msg=path)


def test_a_finished_run_is_left_as_it_is(finished, small_config, shards_dir):
    run_dir, evaluation = finished
    before = (run_dir / "metrics.jsonl").read_text()
    assert run(small_config, shards_dir, run_dir) == evaluation
    assert (run_dir / "metrics.jsonl").read_text() == before


def test_lines_that_a_resumed_log_lacks_are_reported(
    finished, small_config, shards_dir, tmp_path, capsys
):
    run_dir = tmp_path / "run"
    shutil.copytree(finished[0], run_dir)
    log = run_dir / "metrics.jsonl"
    log.write_text(log.read_text().partition("\n")[0] + "\n")
    run(small_config, shards_dir, run_dir)
    assert (
        f"WARNING: {log} is not as this run left it at step 12: it has 1 of "
        "5 lines; the longest stretch without one is from step 5 to 12."
    ) in capsys.readouterr().out


def poison(monkeypatch, bad_steps):
    """From now on the batches of these steps have an infinite loss."""
    plain_batch = Phases.batch

    def batch(self, place, rows):
        made = plain_batch(self, place, rows)
        if place.step + place.passed_over in bad_steps:
            made["masked_lm_weights"][0, 0] = np.inf
        return made

    monkeypatch.setattr(Phases, "batch", batch)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_the_run(
    small_config, shards_dir, tmp_path, monkeypatch
):
    poison(monkeypatch, {6})
    with pytest.raises(RunStopped) as raised:
        run(small_config, shards_dir, tmp_path / "run")
    assert raised.value.exit_code == 17
    message = str(raised.value)
    assert message.startswith("loss is ")
    assert "at step 7; its batch: " in message
    assert "record " in message
    assert "go on with --on_nonfinite=skip or rollback" in message
    assert sorted(os.listdir(tmp_path / "run/checkpoints")) == [
        "step-4",
        "step-6",
    ]
    (line,) = (tmp_path / "run/events.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert event["step"] == 7
    assert len(event["records"]) == 8
    source = raised.value
    assert all(name in str(source) for name in event["records"])


@pytest.mark.slow
def test_a_step_that_is_not_finite_is_skipped(
    small_config, shards_dir, tmp_path, monkeypatch, capsys
):
    poison(monkeypatch, {2, 6})
    config = override(small_config, {"on_nonfinite": "skip"})
    evaluation = run(config, shards_dir, tmp_path / "run")
    assert np.isfinite(evaluation["loss"])
    assert [x["skipped_steps"] for x in lines_of(tmp_path / "run")] == [1, 2, 2]
    said = capsys.readouterr().out
    assert "at step 3; its batch: " in said
    assert said.count(": skipped.") == 2


@pytest.mark.slow
def test_a_run_that_stopped_goes_on_as_its_message_says(
    small_config, shards_dir, tmp_path, monkeypatch, capsys
):
    poison(monkeypatch, {6})
    skipping = override(small_config, {"on_nonfinite": "skip"})
    run(skipping, shards_dir, tmp_path / "whole")
    with pytest.raises(RunStopped, match="go on with --on_nonfinite=skip"):
        run(small_config, shards_dir, tmp_path / "run")
    run(skipping, shards_dir, tmp_path / "run")
    said = capsys.readouterr().out
    assert "From step 7 on: on_nonfinite=skip (before: stop)." in said
    logs = [tmp_path / name / "metrics.jsonl" for name in ("run", "whole")]
    assert logs[0].read_text() == logs[1].read_text()
    written = json.loads((tmp_path / "run/config.json").read_text())
    assert written["config"]["training"]["on_nonfinite"] == "skip"
    assert written["changes"] == [
        {"after_step": 6, "settings": {"on_nonfinite": ["stop", "skip"]}}
    ]


@pytest.mark.slow
def test_a_run_without_a_good_step_ends(
    small_config, shards_dir, tmp_path, monkeypatch
):
    poison(monkeypatch, set(range(1, 12)))
    config = override(small_config, {"on_nonfinite": "skip"})
    with pytest.raises(RunStopped, match="10 steps in a row were skipped"):
        run(config, shards_dir, tmp_path / "run")


@pytest.mark.slow
def test_a_roll_back_leaves_the_examples_out(
    small_config, shards_dir, tmp_path, monkeypatch, capsys
):
    """Also when the run is interrupted after it."""
    poison(monkeypatch, {6})
    config = override(small_config, {"on_nonfinite": "rollback"})
    evaluation = run(config, shards_dir, tmp_path / "run")
    said = capsys.readouterr().out
    assert "Back to step 6; the examples of the 1 steps up to 7 are" in said
    assert lines_of(tmp_path / "run")[-1]["step"] == 12
    last = lines_of(tmp_path / "run")[-1]
    # Twelve steps, but the records of thirteen batches less the seventh's.
    source = PretrainingBatches(
        open_shards(shards_dir, "train"),
        masking_config=config.masking,
        batch_size=8,
        seed=config.training.seed,
        training=True,
    )
    digest = 0
    for step in (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12):
        digest = zlib.crc32(source.record_numbers(step).tobytes(), digest)
    assert last["records_crc32"] == digest
    assert np.isfinite(evaluation["loss"])


@pytest.mark.slow
def test_three_roll_backs_are_enough(
    small_config, shards_dir, tmp_path, monkeypatch
):
    poison(monkeypatch, set(range(6, 20)))
    config = override(small_config, {"on_nonfinite": "rollback"})
    with pytest.raises(RunStopped, match="after 3 roll-backs step 7 is not"):
        run(config, shards_dir, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_at_the_next_step(
    number, finished, small_config, shards_dir, tmp_path, monkeypatch
):
    plain_steps = loop.Trainer.train_steps
    calls, saved_when_all_met = [], []
    saved = tmp_path / "run/checkpoints/step-7"

    def signalled(self, *args, **kwargs):
        results = plain_steps(self, *args, **kwargs)
        calls.append(1)
        if len(calls) == 7:
            os.kill(os.getpid(), number)
        return results

    def meeting(strategy, value):
        saved_when_all_met.append(saved.exists())
        return value

    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "train_steps", signalled)
        patch.setattr(loop, "broadcast", meeting)
        with pytest.raises(RunStopped) as raised:
            run(small_config, shards_dir, tmp_path / "run")
    assert str(raised.value) == (
        f"{number.name}: saved at step 7; the same command goes on."
    )
    assert raised.value.exit_code == 128 + number
    assert signal.getsignal(number) == before
    # No worker ends, which would end the others, before that.
    assert saved_when_all_met[-1]
    whole, evaluation = finished
    assert run(small_config, shards_dir, tmp_path / "run") == evaluation
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (
        whole / "metrics.jsonl"
    ).read_bytes()


@pytest.mark.slow
def test_a_signal_ends_a_run_that_waits_for_data(
    finished, small_config, shards_dir, tmp_path, monkeypatch
):
    plain_batch, plain_steps = Phases.batch, loop.Trainer.train_steps
    hanging = threading.Event()
    made = []

    def counted(self, *args, **kwargs):
        results = plain_steps(self, *args, **kwargs)
        made.append(results)
        return results

    def stuck(self, place, rows):
        if place.step == 7 and not hanging.is_set():
            while len(made) < 7:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
            hanging.wait(60)
        return plain_batch(self, place, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Phases, "batch", stuck)
        patch.setattr(loop.Trainer, "train_steps", counted)
        patch.setattr(input_pipeline, "_ENDING_SECONDS", 0.1)
        with pytest.raises(RunStopped, match="saved at step 7; ") as raised:
            run(small_config, shards_dir, tmp_path / "run")
        hanging.set()
    assert raised.value.exit_code == 143
    whole, evaluation = finished
    assert run(small_config, shards_dir, tmp_path / "run") == evaluation
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (
        whole / "metrics.jsonl"
    ).read_bytes()


@pytest.mark.slow
def test_a_model_that_finds_no_room(
    finished, small_config, shards_dir, tmp_path, monkeypatch, capsys
):
    plain_export = pretrain.save_model_directory

    def full(path, *args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pretrain, "save_model_directory", full)
    with pytest.raises(RunStopped) as raised:
        run(small_config, shards_dir, tmp_path / "run")
    said = f"{tmp_path}/run/best_model could not be written: No space left on"
    assert said in capsys.readouterr().out
    assert raised.value.exit_code == 74
    assert "make room and start the same command again" in str(raised.value)
    monkeypatch.setattr(pretrain, "save_model_directory", plain_export)
    whole, evaluation = finished
    assert run(small_config, shards_dir, tmp_path / "run") == evaluation
    assert (tmp_path / "run/model/model.safetensors").read_bytes() == (
        whole / "model/model.safetensors"
    ).read_bytes()


@pytest.mark.slow
def test_a_run_whose_checkpoints_are_gone_says_that_it_begins_again(
    small_config, shards_dir, tmp_path, capsys
):
    run(small_config, shards_dir, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoints")
    assert "begins again" not in capsys.readouterr().out
    run(small_config, shards_dir, tmp_path / "run")
    assert "run has no checkpoint: the run begins again." in (
        capsys.readouterr().out
    )


@pytest.mark.slow
def test_a_run_directory_that_is_removed_ends_the_run(
    small_config, shards_dir, tmp_path, monkeypatch
):
    run_dir = tmp_path / "run"
    plain_save = loop.Checkpoints.save

    def removed(self, step, state, **options):
        plain_save(self, step, state, **options)
        if step == 4:
            shutil.rmtree(run_dir)

    monkeypatch.setattr(loop.Checkpoints, "save", removed)
    with pytest.raises(RunStopped) as raised:
        run(small_config, shards_dir, run_dir)
    assert raised.value.exit_code == 74
    assert f"{run_dir}/config.json is gone: the run directory was removed" in (
        str(raised.value)
    )
    assert not (run_dir / "model").exists()


@pytest.mark.slow
def test_a_run_directory_out_of_reach_for_a_moment_is_told(
    small_config, shards_dir, tmp_path, monkeypatch, capsys
):
    """It is not gone: the run tries again at the next save."""
    config_path = str(tmp_path / "run/config.json")
    plain_open = files.open
    tried = []

    def out_of_reach(path, mode="rb"):
        if str(path) == config_path and mode == "rb":
            tried.append(path)
            if len(tried) == 1:
                raise OSError(errno.ESTALE, "Stale file handle")
        return plain_open(path, mode)

    monkeypatch.setattr(files, "open", out_of_reach)
    evaluation = run(small_config, shards_dir, tmp_path / "run")
    assert np.isfinite(evaluation["loss"])
    assert len(tried) > 1
    said = f"{tmp_path}/run cannot be read: Stale file handle. The run goes on"
    assert said in capsys.readouterr().out


@pytest.mark.slow
def test_a_full_disk_is_told_and_tried_again(
    small_config, shards_dir, tmp_path, monkeypatch, capsys
):
    plain_save = loop.Checkpoints.save
    tried = []

    def full(self, step, state, **options):
        tried.append(step)
        if step < 12:
            raise SaveFailed(f"Step {step}: no space left on device.")
        plain_save(self, step, state, **options)

    monkeypatch.setattr(loop.Checkpoints, "save", full)
    with pytest.raises(RunStopped) as raised:
        run(small_config, shards_dir, tmp_path / "run")
    assert raised.value.exit_code == 74
    assert tried == [4, 6, 8]
    assert "The last good checkpoint is of step none" in str(raised.value)
    assert "Step 4: no space left on device. The run goes on" in (
        capsys.readouterr().out
    )


@pytest.mark.slow
def test_a_reader_that_hangs_ends_the_run(
    small_config, shards_dir, tmp_path, monkeypatch, capfd
):
    hold = threading.Event()
    plain_batch = Phases.batch

    def batch(self, place, rows):
        if place.step == 3:
            hold.wait(60)
        return plain_batch(self, place, rows)

    monkeypatch.setattr(Phases, "batch", batch)
    try:
        with pytest.raises(RunStopped, match="step 4 was not read within 1 s"):
            run(
                small_config,
                shards_dir,
                tmp_path / "run",
                runtime=RuntimeConfig(data_timeout_secs=1.0),
            )
    finally:
        hold.set()
    # Where it hangs.
    assert "in batch" in capfd.readouterr().err


@pytest.mark.slow
def test_killed_while_it_wrote_its_configuration(
    small_config, shards_dir, tmp_path
):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.json.tmp-77").write_text('{"job')
    config = override(small_config, {"num_train_steps": 1})
    run(config, shards_dir, tmp_path / "run")
    assert (tmp_path / "run/model").is_dir()


@pytest.mark.slow
def test_a_torn_line_of_the_log_is_cut_off(small_config, shards_dir, tmp_path):
    run(small_config, shards_dir, tmp_path / "run")
    log = tmp_path / "run/metrics.jsonl"
    whole = log.read_text()
    log.write_text(whole + '{"step": 1')
    run(small_config, shards_dir, tmp_path / "run")
    assert log.read_text() == whole


def test_a_damaged_shard_is_named(
    small_config, shards_dir, tmp_path, tiny_directory
):
    copy = tmp_path / "shards"
    shutil.copytree(shards_dir, copy)
    shard = copy / "train-00000-of-00001.tfrecord"
    os.truncate(shard, os.path.getsize(shard) - 5)
    with pytest.raises(UserError, match=shard.name):
        run(small_config, str(copy), tmp_path / "run")
