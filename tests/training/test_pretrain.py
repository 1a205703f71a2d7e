"""A pretraining run as a whole: interrupted, resumed, refused."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator,
)

from albert_tf.config import (
    MaskingConfig,
    PretrainingDataConfig,
    RuntimeConfig,
    UserError,
    override,
    to_dict,
)
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
)
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.text.shards import open_shards
from albert_tf.training import input_pipeline, loop, monitor, pretrain
from albert_tf.training.checkpoints import SaveFailed
from albert_tf.training.input_pipeline import PretrainingBatches
from albert_tf.training.phases import Phases
from albert_tf.training.pretrain import run_pretraining
from albert_tf.training.stops import RunStopped
from data_prep.pretraining_data import build_pretraining_data


def run(config, shards_dir, run_dir, **options):
    return run_pretraining(
        config,
        train_data=[shards_dir],
        eval_data=[shards_dir],
        run_dir=str(run_dir),
        **options,
    )


def weights_of(run_dir):
    model = load_model_directory(os.path.join(run_dir, "model")).model
    return {v.path: np.array(v) for v in model.trainable_variables}


@pytest.fixture(scope="module")
def finished(small_config, shards_dir, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("runs") / "whole"
    return run_dir, run(small_config, shards_dir, run_dir)


def test_artifacts(finished, small_config):
    run_dir, evaluation = finished
    assert sorted(os.listdir(run_dir)) == [
        "best_model",
        "checkpoints",
        "config.json",
        "metrics.jsonl",
        "model",
        "tensorboard",
        "timing.jsonl",
    ]
    written = json.loads((run_dir / "config.json").read_text())
    assert written["config"] == to_dict(small_config)
    lines = [
        json.loads(line)
        for line in (run_dir / "metrics.jsonl").read_text().splitlines()
    ]
    assert [(line["step"], line["split"]) for line in lines] == [
        (5, "train"),
        (6, "eval"),
        (10, "train"),
        (12, "train"),
        (12, "eval"),
    ]
    last = lines[-1]
    assert {k: last[k] for k in evaluation} == evaluation
    boards = [path.name for path in (run_dir / "tensorboard").iterdir()]
    # Beside them one file with the settings, to compare runs by.
    assert {"eval", "train"} < set(boards) and len(boards) == 3
    assert sorted(os.listdir(run_dir / "checkpoints")) == ["step-12", "step-8"]


def test_recomputing_layers_changes_nothing(
    finished, small_config, shards_dir, tmp_path, monkeypatch
):
    made = []
    remat = keras.remat
    monkeypatch.setattr(keras, "remat", lambda f: made.append(f) or remat(f))
    config = override(small_config, {"remat": "selective"})
    evaluation = run(config, shards_dir, tmp_path / "remat")
    assert evaluation == pytest.approx(finished[1], rel=1e-5)
    assert made
    written = json.loads((tmp_path / "remat/config.json").read_text())
    assert written["config"]["training"]["remat"] == "selective"


def test_trust_ratios_are_logged(finished):
    """Every matrix in TensorBoard, their spread in metrics.jsonl."""
    run_dir, _ = finished
    logged = []
    for text in (run_dir / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        spread = {k: v for k, v in line.items() if "trust_ratio_" in k}
        assert len(spread) == (3 if line["split"] == "train" else 0)
        logged += [spread] if spread else []
    events = EventAccumulator(
        str(run_dir / "tensorboard/train"), {"tensors": 0}
    )
    events.Reload()
    weights = weights_of(run_dir)
    shown = [
        events.Tensors(f"trust_ratio/{path}")
        for path, value in weights.items()
        if value.ndim == 2
    ]
    assert len(shown) == str(events.Tags()["tensors"]).count("trust_ratio/")
    for number, (step, spread) in enumerate(
        zip((5, 10, 12), logged, strict=True)
    ):
        assert {events[number].step for events in shown} == {step}
        values = [
            float(tf.make_ndarray(events[number].tensor_proto))
            for events in shown
        ]
        assert spread == {
            "trust_ratio_min": min(values),
            "trust_ratio_median": np.median(values),
            "trust_ratio_max": max(values),
        }
        assert 0 < min(values) < max(values)
    assert logged[0] != logged[1]
    assert monitor.summarize_trust_ratios({}) == {}


class PowerCut(BaseException):
    """What ends a run without letting it tidy up."""


@pytest.mark.parametrize("after", [3, 7, 11, 12])
def test_interrupted_and_resumed_is_the_same_run(
    after, finished, small_config, shards_dir, tmp_path, monkeypatch
):
    whole, evaluation = finished
    steps = iter(range(1, 100))
    plain_steps = loop.Trainer.train_steps

    def failing_steps(self, *args, **kwargs):
        results = plain_steps(self, *args, **kwargs)
        if next(steps) == after:
            raise PowerCut
        return results

    run_dir = tmp_path / "cut"
    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "train_steps", failing_steps)
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


def test_another_configuration_is_refused(finished, small_config, shards_dir):
    run_dir, _ = finished
    other = override(small_config, {"learning_rate": 0.02, "seed": 4})
    before = sorted(os.walk(run_dir))
    with pytest.raises(UserError) as raised:
        run(other, shards_dir, run_dir)
    message = str(raised.value)
    assert "learning_rate: 0.02 here, 0.01 there" in message
    assert "seed: 4 here, 12345 there" in message
    assert sorted(os.walk(run_dir)) == before


def poison(monkeypatch, bad_steps):
    """From now on the batches of these steps have an infinite loss."""
    plain_batch = Phases.batch

    def batch(self, place, rows):
        made = plain_batch(self, place, rows)
        if place.step + place.passed_over in bad_steps:
            made["masked_lm_weights"][0, 0] = np.inf
        return made

    monkeypatch.setattr(Phases, "batch", batch)


def lines_of(run_dir, split="train"):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [x for x in map(json.loads, lines) if x["split"] == split]


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


def test_a_run_without_a_good_step_ends(
    small_config, shards_dir, tmp_path, monkeypatch
):
    poison(monkeypatch, set(range(1, 12)))
    config = override(small_config, {"on_nonfinite": "skip"})
    with pytest.raises(RunStopped, match="10 steps in a row were skipped"):
        run(config, shards_dir, tmp_path / "run")


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


def test_three_roll_backs_are_enough(
    small_config, shards_dir, tmp_path, monkeypatch
):
    poison(monkeypatch, set(range(6, 20)))
    config = override(small_config, {"on_nonfinite": "rollback"})
    with pytest.raises(RunStopped, match="after 3 roll-backs step 7 is not"):
        run(config, shards_dir, tmp_path / "run")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_at_the_next_step(
    number, finished, small_config, shards_dir, tmp_path, monkeypatch
):
    plain_steps = loop.Trainer.train_steps
    calls = []

    def signalled(self, *args, **kwargs):
        results = plain_steps(self, *args, **kwargs)
        calls.append(1)
        if len(calls) == 7:
            os.kill(os.getpid(), number)
        return results

    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "train_steps", signalled)
        with pytest.raises(RunStopped) as raised:
            run(small_config, shards_dir, tmp_path / "run")
    assert str(raised.value) == (
        f"{number.name}: saved at step 7; the same command goes on."
    )
    assert raised.value.exit_code == 128 + number
    assert signal.getsignal(number) == before
    assert "step-7" in os.listdir(tmp_path / "run/checkpoints")
    whole, evaluation = finished
    assert run(small_config, shards_dir, tmp_path / "run") == evaluation
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (
        whole / "metrics.jsonl"
    ).read_bytes()


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


def test_early_stopping_keeps_the_best(small_config, shards_dir, tmp_path):
    """At a rate of 0 no evaluation is better than the first."""
    config = override(
        small_config,
        {
            "learning_rate": 0.0,
            "eval_steps": 2,
            "early_stopping_patience": 2,
            "best_metric": "masked_lm_accuracy",
        },
    )
    run(config, shards_dir, tmp_path / "run")
    assert [x["step"] for x in lines_of(tmp_path / "run", "eval")] == [2, 4, 6]
    assert "step-2" in os.listdir(tmp_path / "run/checkpoints")
    assert (tmp_path / "run/best_model/model.safetensors").read_bytes() == (
        tmp_path / "run/model/model.safetensors"
    ).read_bytes()
    # It is over: the same command trains no further.
    run(config, shards_dir, tmp_path / "run")
    assert len(lines_of(tmp_path / "run", "eval")) == 3


def test_a_measure_that_there_is_not(small_config, shards_dir, tmp_path):
    config = override(small_config, {"best_metric": "f1"})
    with pytest.raises(UserError, match="best_metric='f1' is not measured"):
        run(config, shards_dir, tmp_path / "run")
    # At once, and a corrected command finds no other run there.
    assert not (tmp_path / "run").exists()


def test_two_phases_in_one_run(
    small_config, shards_dir, single_segments, tmp_path, monkeypatch
):
    """Each from its first batch, with its own batch size; interrupted."""
    seen = []
    plain_batch = PretrainingBatches.batch

    def batch(self, step, rows=None):
        if self.training:
            seen.append((self.batch_size, step))
        return plain_batch(self, step, rows)

    monkeypatch.setattr(PretrainingBatches, "batch", batch)
    config = override(
        small_config, {"phases": "8,4", "phase_batch_sizes": "8,2"}
    )
    evaluation = run_pretraining(
        config,
        train_data=[shards_dir, shards_dir],
        eval_data=[shards_dir],
        run_dir=str(tmp_path / "run"),
    )
    assert seen == [(8, step) for step in range(8)] + [
        (2, step) for step in range(4)
    ]
    assert np.isfinite(evaluation["loss"])
    with pytest.raises(UserError, match="phases=8,3 makes 11 steps, and"):
        run_pretraining(
            override(config, {"phases": "8,3"}),
            train_data=[shards_dir, shards_dir],
            eval_data=[shards_dir],
            run_dir=str(tmp_path / "other"),
        )


def test_depths_that_grow(small_config, shards_dir, tmp_path, monkeypatch):
    depths = []
    plain_steps = loop.Trainer.train_steps

    def watched(self, batches, num_applications, **options):
        depths.append(num_applications)
        return plain_steps(self, batches, num_applications, **options)

    monkeypatch.setattr(loop.Trainer, "train_steps", watched)
    config = override(small_config, {"depth_schedule": "0:1,5:2"})
    run(config, shards_dir, tmp_path / "run")
    assert depths == [1] * 5 + [2] * 7


def test_settings_for_steps_after_the_last_are_told(
    small_config, shards_dir, tmp_path, capsys
):
    changes = {
        "depth_schedule": "0:1,1:2",
        "num_train_steps": 1,
        "num_warmup_steps": 2,
    }
    run_pretraining(
        override(small_config, changes),
        train_data=[shards_dir],
        eval_data=[shards_dir],
        run_dir=str(tmp_path / "run"),
        runtime=RuntimeConfig(profile_steps="12,14"),
    )
    said = capsys.readouterr().out
    for name, step in (("depth_schedule", 1), ("profile_steps", 12)):
        assert (
            f"{name} has something to do after step {step}, but the run ends "
            "with step 1." in said
        )
    assert "num_warmup_steps=2 is more than num_train_steps=1" in said


def test_several_steps_per_call_are_the_same_run(
    finished, small_config, shards_dir, tmp_path
):
    config = override(small_config, {"steps_per_loop": 5})
    evaluation = run(config, shards_dir, tmp_path / "run")
    assert evaluation == pytest.approx(finished[1], rel=1e-4)
    ours, theirs = lines_of(tmp_path / "run"), lines_of(finished[0])
    assert [x["step"] for x in ours] == [5, 10, 12]
    for one, other in zip(ours, theirs, strict=True):
        assert one["records_crc32"] == other["records_crc32"]
        assert one["masked_lm_loss"] == pytest.approx(
            other["masked_lm_loss"], rel=1e-5
        )


def test_killed_while_it_wrote_its_configuration(
    small_config, shards_dir, tmp_path
):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.json.tmp-77").write_text('{"job')
    config = override(small_config, {"num_train_steps": 1})
    run(config, shards_dir, tmp_path / "run")
    assert (tmp_path / "run/model").is_dir()


def test_a_torn_line_of_the_log_is_cut_off(small_config, shards_dir, tmp_path):
    run(small_config, shards_dir, tmp_path / "run")
    log = tmp_path / "run/metrics.jsonl"
    whole = log.read_text()
    log.write_text(whole + '{"step": 1')
    run(small_config, shards_dir, tmp_path / "run")
    assert log.read_text() == whole


def test_shards_of_another_vocabulary_of_the_same_size(
    small_config, shards_dir, tmp_path
):
    copy = tmp_path / "shards"
    shutil.copytree(shards_dir, copy)
    metadata = json.loads((copy / "metadata.json").read_text())
    metadata["tokenizer"]["fingerprint"] = "0" * 64
    (copy / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(UserError, match="another vocabulary than the model's"):
        run_pretraining(
            small_config,
            train_data=[shards_dir],
            eval_data=[str(copy)],
            run_dir=str(tmp_path / "run"),
        )


def test_static_shards_train_too(
    small_config, tiny_directory, sentences, tmp_path
):
    text = "\n\n".join("\n".join(sentences[n : n + 8]) for n in range(300))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    build_pretraining_data(
        [str(tmp_path / "text.txt")],
        str(tmp_path / "shards"),
        tokenizer_dir=str(tiny_directory),
        config=PretrainingDataConfig(
            document_separator="blank_line",
            sentence_splitter="newline",
            record_kind="static",
            max_seq_length=32,
            eval_fraction=0.2,
        ),
        masking=MaskingConfig(),
    )
    config = override(
        small_config, {"num_train_steps": 2, "precision": "bfloat16"}
    )
    evaluation = run(config, str(tmp_path / "shards"), tmp_path / "run")
    assert 4 < evaluation["masked_lm_loss"] < 6


def test_a_directory_of_something_else_is_refused(
    small_config, shards_dir, tmp_path
):
    (tmp_path / "letter.txt").write_text("dear diary")
    with pytest.raises(UserError, match="not a run directory"):
        run(small_config, shards_dir, tmp_path)


def test_vocabulary_of_another_size(small_config, shards_dir, tmp_path):
    config = override(small_config, {"vocab_size": 300})
    with pytest.raises(UserError, match="200 pieces and.*vocab_size=300"):
        run(config, shards_dir, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_damaged_shard_is_named(
    small_config, shards_dir, tmp_path, tiny_directory
):
    copy = tmp_path / "shards"
    shutil.copytree(shards_dir, copy)
    shard = copy / "train-00000-of-00001.tfrecord"
    os.truncate(shard, os.path.getsize(shard) - 5)
    with pytest.raises(UserError, match=shard.name):
        run(small_config, str(copy), tmp_path / "run")


def test_starts_from_given_weights(
    finished, small_config, shards_dir, tmp_path
):
    run_dir, _ = finished
    config = override(small_config, {"learning_rate": 0.0})
    initial = find_initial_weights(str(run_dir))
    run(config, shards_dir, tmp_path / "next", initial=initial)
    expected = weights_of(run_dir)
    for path, value in weights_of(tmp_path / "next").items():
        np.testing.assert_array_equal(value, expected[path], err_msg=path)


def test_single_segments(small_config, single_segments, tmp_path, capsys):
    evaluation = run(small_config, single_segments, tmp_path / "run")
    said = capsys.readouterr().out
    assert "Sentence objective none: single segments, masked LM alone" in said
    lines = [
        json.loads(line)
        for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    for name in {*evaluation, *(name for line in lines for name in line)}:
        assert not re.search("sentence|order", name)
    steps = [line for line in lines if line["split"] == "train"]
    assert "masked_lm_loss" in steps[-1]
    # Nothing has trained the head, and it is there, as it began.
    keras.utils.set_random_seed(small_config.training.seed)
    fresh = AlbertForPretraining(small_config.model).sentence_order
    trained = weights_of(tmp_path / "run")
    assert np.std(trained[fresh.classifier.kernel.path]) > 0
    for variable in fresh.trainable_variables:
        np.testing.assert_array_equal(trained[variable.path], variable)


def test_another_objective_may_follow(
    small_config, single_segments, next_sentences, tmp_path
):
    config = override(small_config, {"num_train_steps": 1})
    run(config, single_segments, tmp_path / "single")
    initial = find_initial_weights(str(tmp_path / "single"))
    evaluation = run(config, next_sentences, tmp_path / "next", initial=initial)
    assert "next_sentence_accuracy" in evaluation
    assert not any("order" in name for name in evaluation)


def test_held_out_shards_of_another_objective(
    small_config, shards_dir, next_sentences, tmp_path
):
    said = (
        f"{shards_dir} was built with sentence_objective=sop and "
        f"{next_sentences} with sentence_objective=nsp; a run needs shards "
        "of one: build both with the same --sentence_objective."
    )
    with pytest.raises(UserError, match=re.escape(said)):
        run_pretraining(
            small_config,
            train_data=[shards_dir],
            eval_data=[next_sentences],
            run_dir=str(tmp_path / "run"),
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("wanted", "taught"),
    [("nsp", "sop"), ("none", "sop"), ("sop", "nsp"), ("sop", "none")],
)
def test_shards_of_another_objective_than_wanted(
    wanted, taught, small_config, request, tmp_path
):
    shards = {"sop": "shards_dir", "nsp": "next_sentences"}
    directory = request.getfixturevalue(shards.get(taught, "single_segments"))
    said = (
        f"{directory} was built with sentence_objective={taught}, and this run "
        f"is to learn sentence_objective={wanted}: build its shards by python "
        f"-m bin.build_pretraining_data --sentence_objective={wanted}, or give "
        f"this run --sentence_objective={taught}."
    )
    config = override(small_config, {"sentence_objective": wanted})
    with pytest.raises(UserError) as raised:
        run(config, directory, tmp_path / "run")
    assert str(raised.value) == said
    assert not (tmp_path / "run").exists()


def test_shards_of_the_objective_wanted(
    small_config, next_sentences, tmp_path, monkeypatch
):
    class Reached(Exception):
        pass

    def claim(run_dir, description):
        settings = description["config"]["pretraining"]
        assert settings["sentence_objective"] == "nsp"
        raise Reached

    monkeypatch.setattr(loop, "claim", claim)
    config = override(small_config, {"sentence_objective": "nsp"})
    with pytest.raises(Reached):
        run(config, next_sentences, tmp_path / "run")


@pytest.mark.slow
def test_programs_say_that_there_is_no_sentence_objective(
    single_segments, tmp_path
):
    def program(name, *flags):
        return subprocess.run(
            [sys.executable, "-m", f"bin.{name}", *flags],
            cwd=os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    row = r"\nsentence objective +none"
    pretrained = program(
        "pretrain",
        "--preset=tiny",
        f"--train_data={single_segments}",
        f"--eval_data={single_segments}",
        f"--run_dir={tmp_path}/run",
        "--num_train_steps=1",
        "--train_batch_size=4",
    )
    assert re.search(row, pretrained)
    assert re.search(row, program("show_results", f"--run_dirs={tmp_path}/run"))
    evaluated = program(
        "evaluate",
        "--task=pretraining",
        f"--data_dir={single_segments}",
        f"--model_dir={tmp_path}/run/model",
        f"--output_dir={tmp_path}/evaluation",
    )
    assert re.search(row, evaluated)
    metrics = json.loads((tmp_path / "evaluation/metrics.json").read_text())
    assert not any("sentence" in name for name in metrics)
    assert "masked_lm_accuracy" in metrics


@pytest.mark.slow
def test_it_learns(small_config, tiny_directory, tmp_path):
    """On text whose every word and order follows from its neighbours."""
    words = ["bada", "gule", "mizo", "tepu", "rika", "sovu", "naje", "hobi"]
    sentences = [
        f"The {words[n % 8]} of {words[(n + 1) % 8]} and the "
        f"{words[(n + 3) % 8]} {'(first)' if n % 8 == 0 else ''}."
        for n in range(64)
    ]
    text = "\n\n".join("\n".join(sentences[n:]) for n in range(48))
    (tmp_path / "text.txt").write_text(text)
    build_pretraining_data(
        [str(tmp_path / "text.txt")],
        str(tmp_path / "shards"),
        tokenizer_dir=str(tiny_directory),
        config=PretrainingDataConfig(
            document_separator="blank_line",
            sentence_splitter="newline",
            max_seq_length=32,
            eval_fraction=0.2,
        ),
        masking=MaskingConfig(),
    )
    config = override(
        small_config,
        {
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "hidden_size": 32,
            "num_train_steps": 600,
            "num_warmup_steps": 50,
            "train_batch_size": 32,
            "learning_rate": 0.02,
            "eval_steps": 0,
        },
    )
    evaluation = run(config, str(tmp_path / "shards"), tmp_path / "run")
    assert (
        evaluation["masked_lm_accuracy"]
        > 2 * evaluation["most_frequent_token_accuracy"]
    )
