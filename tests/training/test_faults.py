"""Faults that end or damage a run, and resuming after them."""

import concurrent.futures
import errno
import json
import math
import os
import shutil
import signal
import sys
import threading
import zlib
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from pretraining_runs import after_calls, contents, lines_of, terminate

from albert_tf.cluster import distribution
from albert_tf.cluster.stops import RunStopped
from albert_tf.config import RuntimeConfig, UserError
from albert_tf.inputs import prefetch
from albert_tf.inputs.input_pipeline import PretrainingBatches
from albert_tf.inputs.source_schedule import SourceSchedule
from albert_tf.io import files
from albert_tf.jobs import pretrain
from albert_tf.records.shards import open_shards
from albert_tf.rundir.checkpoints import Checkpoints
from albert_tf.training import loop, running_statistics
from albert_tf.training.trainer import Trainer


def test_a_finished_run_is_not_changed(fake_run, tmp_path):
    evaluation = fake_run()
    before = contents(tmp_path / "run")
    assert fake_run() == evaluation
    assert contents(tmp_path / "run") == before


def test_a_damaged_log_is_reported(fake_run, tmp_path, capsys):
    fake_run()
    log = tmp_path / "run/metrics.jsonl"
    log.write_text(log.read_text().partition("\n")[0] + "\n")
    fake_run()
    warning = f"WARNING: {log} is not as this run left it at step 12: it has 1"
    assert warning in capsys.readouterr().out


def poison(monkeypatch, bad_steps):
    """Makes the batches of these steps have an infinite loss."""
    plain_batch = SourceSchedule.batch

    def batch(self, step, passed_over, rows):
        made = plain_batch(self, step, passed_over, rows)
        if step + passed_over in bad_steps:
            made["masked_lm_weights"][0, 0] = np.inf
        return made

    monkeypatch.setattr(SourceSchedule, "batch", batch)


def test_a_nonfinite_loss_stops_the_run(fake_run, tmp_path, monkeypatch):
    poison(monkeypatch, {6})
    with pytest.raises(RunStopped) as raised:
        fake_run()
    assert raised.value.exit_code == 17
    message = str(raised.value)
    assert message.startswith("loss is inf at step 7; its batch: ")
    assert "resume with --on_nonfinite=skip or rollback" in message
    saved = sorted(os.listdir(tmp_path / "run/checkpoints"))
    assert saved == ["step-4", "step-6"]
    (line,) = (tmp_path / "run/events.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert event["step"] == 7
    assert len(event["records"]) == 8
    assert all(name in message for name in event["records"])


@pytest.mark.parametrize(
    "change",
    [{"masking_schedule": "0:0.15,6:0.3"}, {"ngram_schedule": "0:1,6:3"}],
)
def test_a_new_stage_is_judged_by_its_own_losses(fake_run, monkeypatch, change):
    monkeypatch.setattr(running_statistics, "_MIN_LOSSES", 2)
    limits = []
    plain_steps = Trainer.train_steps

    def train_steps(self, batches, depth=None, **controls):
        limits.append(controls["loss_limit"])
        return plain_steps(self, batches, depth, **controls)

    monkeypatch.setattr(Trainer, "train_steps", train_steps)
    fake_run(max_loss_spike=6.0, **change)
    no_limit = [number for number in range(12) if math.isinf(limits[number])]
    assert no_limit == [0, 1, 6, 7]


def test_settings_that_do_not_fit_the_model_leave_no_directory(
    fake_run, tmp_path
):
    with pytest.raises(UserError, match="nowhere"):
        fake_run(freeze="nowhere")
    assert not (tmp_path / "run").exists()


def test_a_stopped_run_resumes_as_its_message_says(
    fake_run, tmp_path, monkeypatch, capsys
):
    poison(monkeypatch, {6, 8})
    fake_run(name="whole", on_nonfinite="skip")
    skipped = [x["skipped_steps"] for x in lines_of(tmp_path / "whole")]
    assert skipped == [0, 2, 2]
    assert capsys.readouterr().out.count(": skipped.") == 2
    with pytest.raises(RunStopped, match="resume with --on_nonfinite=skip"):
        fake_run()
    fake_run(on_nonfinite="skip")
    printed = capsys.readouterr().out
    assert "From step 7 on: on_nonfinite=skip (before: stop)." in printed
    logs = [tmp_path / name / "metrics.jsonl" for name in ("run", "whole")]
    assert logs[0].read_text() == logs[1].read_text()
    written = json.loads((tmp_path / "run/config.json").read_text())
    assert written["config"]["training"]["on_nonfinite"] == "skip"
    assert written["changes"] == [
        {"after_step": 6, "settings": {"on_nonfinite": ["stop", "skip"]}}
    ]


@pytest.mark.parametrize("bad", [{6}, {6, 9}])
def test_a_roll_back_skips_the_examples(
    fake_run, small_config, shards_dir, tmp_path, monkeypatch, capsys, bad
):
    poison(monkeypatch, bad)
    fake_run(on_nonfinite="rollback")
    printed = capsys.readouterr().out
    assert "Back to step 6; the examples of the 1 steps up to 7 are" in printed
    last = lines_of(tmp_path / "run")[-1]
    assert last["step"] == 12
    # Twelve steps, of the batches that are not bad.
    source = PretrainingBatches(
        open_shards(shards_dir, "train"),
        masking_config=small_config.masking,
        batch_size=8,
        seed=small_config.training.seed,
        training=True,
    )
    digest = 0
    for step in sorted({*range(12 + len(bad))} - bad):
        digest = zlib.crc32(source.record_numbers(step).tobytes(), digest)
    assert last["records_crc32"] == digest


def test_a_roll_back_passes_over_a_damaged_checkpoint(
    fake_run, tmp_path, monkeypatch, capsys
):
    plain_save = Checkpoints.save

    def save(self, step, state, **options):
        plain_save(self, step, state, **options)
        if step == 6:
            (tmp_path / "run/checkpoints/step-6").write_bytes(b"damaged")

    monkeypatch.setattr(Checkpoints, "save", save)
    poison(monkeypatch, {6})
    fake_run(on_nonfinite="rollback")
    printed = capsys.readouterr().out
    assert "run/checkpoints/step-6.damaged.\nBack to step 4; the" in printed


@pytest.mark.parametrize(
    ("on_nonfinite", "message"),
    [
        ("skip", "10 steps in a row were skipped, the last one step 12: the"),
        ("rollback", "after 3 roll-backs step 1 is not finite either. Lower"),
    ],
)
def test_a_run_without_a_finite_step_has_diverged(
    fake_run, monkeypatch, on_nonfinite, message
):
    poison(monkeypatch, set(range(2, 20)))
    with pytest.raises(RunStopped, match=message) as raised:
        fake_run(on_nonfinite=on_nonfinite)
    assert raised.value.exit_code == 17


def test_roll_backs_to_one_checkpoint_end_whatever_evaluations_follow(
    fake_run, monkeypatch
):
    # Two good steps, with an evaluation that is not better, and a bad one.
    poison(monkeypatch, set(range(4, 100, 3)))
    settings = {"eval_steps": 2, "save_checkpoints_steps": 12}
    message = "after 3 roll-backs step 5 is not finite either"
    with pytest.raises(RunStopped, match=message):
        fake_run(on_nonfinite="rollback", **settings)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_at_the_next_step(
    number, fake_run, tmp_path, monkeypatch
):
    saved_at_barrier = []
    saved = tmp_path / "run/checkpoints/step-7"

    def barrier(strategy, value):
        saved_at_barrier.append(saved.exists())
        return value

    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        after_calls(7, lambda: os.kill(os.getpid(), number), patch.setattr)
        patch.setattr(loop, "broadcast", barrier)
        with pytest.raises(RunStopped) as raised:
            fake_run()
    assert str(raised.value) == (
        f"{number.name}: saved at step 7; the same command resumes the run."
    )
    assert raised.value.exit_code == 128 + number
    assert signal.getsignal(number) == before
    # No worker ends, which would end the others, before that.
    assert saved_at_barrier[-1]
    assert fake_run() == fake_run(name="whole")
    logs = [tmp_path / name / "metrics.jsonl" for name in ("run", "whole")]
    assert logs[0].read_bytes() == logs[1].read_bytes()


def test_a_signal_after_the_last_step_is_for_the_runs_that_follow(
    fake_run, tmp_path, monkeypatch
):
    evaluate = pretrain.evaluate_pretraining

    def signalled(trainer, source, max_steps, depth):
        if len(lines_of(tmp_path / "run")) == 3:
            terminate()
        return evaluate()

    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "evaluate_pretraining", signalled)
        with pytest.raises(RunStopped) as raised:
            fake_run()
    assert raised.value.exit_code == 143
    assert str(raised.value) == (
        f"SIGTERM: {tmp_path}/run is complete; the same command goes on."
    )
    before = contents(tmp_path / "run")
    fake_run()
    assert contents(tmp_path / "run") == before


def test_a_run_in_a_thread_cannot_handle_signals(fake_run):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(fake_run).result()["loss"] == 1.0


def test_a_signal_ends_a_run_that_waits_for_data(
    fake_run, tmp_path, monkeypatch
):
    plain_batch = SourceSchedule.batch
    hanging, made_seven = threading.Event(), threading.Event()

    def stuck(self, step, passed_over, rows):
        if step == 7 and not hanging.is_set():
            made_seven.wait(60)
            terminate()
            hanging.wait(60)
        return plain_batch(self, step, passed_over, rows)

    monkeypatch.setattr(SourceSchedule, "batch", stuck)
    after_calls(7, made_seven.set, monkeypatch.setattr)
    monkeypatch.setattr(prefetch, "_JOIN_SECONDS", 0.1)
    with pytest.raises(RunStopped, match="saved at step 7; ") as raised:
        fake_run()
    hanging.set()
    assert raised.value.exit_code == 143
    fake_run()
    assert [x["step"] for x in lines_of(tmp_path / "run")] == [5, 10, 12]


def test_a_stalled_reader_ends_the_run(fake_run, monkeypatch, capfd):
    hold = threading.Event()
    plain_batch = SourceSchedule.batch

    def batch(self, step, passed_over, rows):
        if step == 3:
            hold.wait(60)
        return plain_batch(self, step, passed_over, rows)

    monkeypatch.setattr(SourceSchedule, "batch", batch)
    monkeypatch.setattr(prefetch, "_JOIN_SECONDS", 0.1)
    try:
        with pytest.raises(RunStopped, match="step 4 was not read within 1 s"):
            fake_run(RuntimeConfig(data_timeout_secs=1.0))
    finally:
        hold.set()
    # The traceback of the thread that hangs.
    assert "in batch" in capfd.readouterr().err


def test_a_stalled_evaluation_ends_the_run(fake_run, monkeypatch):
    hold = threading.Event()

    def evaluate(trainer, *_):
        source = mock.Mock(batch_size=8, num_steps=1)
        source.batch.side_effect = lambda *_: hold.wait(10)
        return trainer.evaluate(source, mock.Mock())

    monkeypatch.setattr(pretrain, "evaluate_pretraining", evaluate)
    monkeypatch.setattr(prefetch, "_JOIN_SECONDS", 0.1)
    message = "the evaluation at step 6 was not read within 1 s"
    try:
        with pytest.raises(RunStopped, match=message) as stopped:
            fake_run(RuntimeConfig(data_timeout_secs=1.0))
    finally:
        hold.set()
    assert stopped.value.exit_code == 75


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("evaluate", "A batch of the evaluation at step 6"),
        ("conclude", "A batch of the held-out data"),
    ],
)
def test_held_out_data_that_cannot_be_read_end_the_run(
    fake_run, monkeypatch, name, what
):
    fail = mock.Mock(side_effect=OSError(errno.EIO, "no answer", "x"))
    monkeypatch.setattr(pretrain._Pretraining, name, fail)
    with pytest.raises(
        RunStopped, match=f"{what} cannot be read: x: no answer"
    ):
        fake_run()


def test_a_bucket_without_answer_ends_the_run(fake_run, monkeypatch):
    """The same command continues it."""
    fail = mock.Mock(side_effect=OSError(errno.EIO, "no answer", "s3://b/x"))
    with monkeypatch.context() as patch:
        patch.setattr(SourceSchedule, "batch", fail)
        text = r"step 1 cannot be read: s3://b/x: no answer\. Start"
        with pytest.raises(RunStopped, match=text) as stopped:
            fake_run()
    assert stopped.value.exit_code == 75
    fake_run()


def test_a_shard_that_is_gone_is_no_reason_to_start_again(
    fake_run, monkeypatch
):
    gone = mock.Mock(side_effect=FileNotFoundError(errno.ENOENT, "gone", "x"))
    monkeypatch.setattr(SourceSchedule, "batch", gone)
    with pytest.raises(FileNotFoundError):
        fake_run()


def test_a_worker_that_is_lost_while_the_model_is_built(fake_run, monkeypatch):
    lost = tf.errors.UnavailableError(None, None, "Connection reset")
    fail = mock.Mock(side_effect=lost)
    monkeypatch.setattr(pretrain, "AlbertForPretraining", fail)
    monkeypatch.setattr(distribution, "is_alone", lambda strategy: False)
    monkeypatch.setattr(distribution, "start_watchdog", mock.Mock())
    with pytest.raises(RunStopped, match="a worker was lost") as stopped:
        fake_run()
    assert stopped.value.exit_code == 75


def test_a_closed_pipe_does_not_end_a_run(fake_run, monkeypatch):
    warning = mock.Mock(return_value="It does not learn.")
    monkeypatch.setattr(pretrain, "no_learning_warning", warning)
    closed = mock.Mock(**{"write.side_effect": BrokenPipeError})
    monkeypatch.setattr(sys, "stdout", closed)
    assert fake_run()


def full_disk():
    """A function that fails as on a full disk."""
    return mock.Mock(
        side_effect=OSError(errno.ENOSPC, "No space left on device")
    )


def test_a_model_that_cannot_be_written(
    fake_run, tmp_path, monkeypatch, capsys
):
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "save_model_directory", full_disk())
        with pytest.raises(RunStopped) as raised:
            fake_run()
    message = f"{tmp_path}/run/best_model could not be written: No space left"
    assert message in capsys.readouterr().out
    assert raised.value.exit_code == 74
    assert "make room and start the same command again" in str(raised.value)
    fake_run()
    assert (tmp_path / "run/model/model.safetensors").exists()


@pytest.mark.parametrize(
    ("on_nonfinite", "steps"),
    # The first checkpoint is what a roll-back at the first steps returns to.
    [("stop", [4, 6, 8]), ("rollback", [0])],
)
def test_checkpoints_that_cannot_be_written(
    fake_run, tmp_path, monkeypatch, capsys, on_nonfinite, steps
):
    save = full_disk()
    monkeypatch.setattr(Checkpoints, "save", save)
    with pytest.raises(
        RunStopped, match="checkpoint is of step none"
    ) as raised:
        fake_run(on_nonfinite=on_nonfinite)
    assert raised.value.exit_code == 74
    assert [call.args[0] for call in save.call_args_list] == steps
    continued = (
        f"The checkpoint of step 4 could not be saved in {tmp_path}/run: No "
        "space left on device. The run continues"
    ) in capsys.readouterr().out
    assert continued == (on_nonfinite == "stop")


def test_failures_that_are_not_in_a_row_do_not_end_the_run(
    fake_run, monkeypatch
):
    plain_save = Checkpoints.save

    def save(self, step, state, **options):
        if step in (1, 2, 4):
            raise OSError(errno.ENOSPC, "No space left on device")
        plain_save(self, step, state, **options)

    monkeypatch.setattr(Checkpoints, "save", save)
    assert fake_run(save_checkpoints_steps=1)


def test_a_run_whose_checkpoints_are_gone_begins_again(
    fake_run, tmp_path, capsys
):
    fake_run()
    shutil.rmtree(tmp_path / "run/checkpoints")
    assert "begins again" not in capsys.readouterr().out
    fake_run()
    assert "no checkpoint: the run begins again." in capsys.readouterr().out


def test_a_run_directory_that_is_removed_ends_the_run(
    fake_run, tmp_path, monkeypatch
):
    run_dir = tmp_path / "run"
    plain_save = Checkpoints.save

    def removed(self, step, state, **options):
        plain_save(self, step, state, **options)
        if step == 4:
            shutil.rmtree(run_dir)

    monkeypatch.setattr(Checkpoints, "save", removed)
    with pytest.raises(RunStopped, match="json is gone: the run dir") as raised:
        fake_run()
    assert raised.value.exit_code == 74
    assert not (run_dir / "model").exists()


def test_an_unreachable_run_directory_is_retried_at_the_next_save(
    fake_run, tmp_path, monkeypatch, capsys
):
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
    fake_run()
    assert len(tried) > 1
    assert ": Stale file handle. The run continues" in capsys.readouterr().out
