"""A pretraining run as a whole: interrupted, resumed, refused."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

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
    UserError,
    override,
    to_dict,
)
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
)
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.training import loop, run_directory
from albert_tf.training.pretrain import run_pretraining
from data_prep.pretraining_data import build_pretraining_data


def run(config, shards_dir, run_dir, **options):
    return run_pretraining(
        config,
        train_data=shards_dir,
        eval_data=shards_dir,
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
        "checkpoints",
        "config.json",
        "metrics.jsonl",
        "model",
        "tensorboard",
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
    assert sorted(os.listdir(run_dir / "tensorboard")) == ["eval", "train"]
    assert (
        os.listdir(run_dir / "checkpoints").sort()
        == [
            "step-12",
            "step-8",
        ].sort()
    )


def test_recomputing_layers_changes_nothing(
    finished, small_config, shards_dir, tmp_path
):
    remat = override(small_config, {"remat": True})
    evaluation = run(remat, shards_dir, tmp_path / "remat")
    assert evaluation == pytest.approx(finished[1], rel=1e-5)
    assert json.loads((tmp_path / "remat/config.json").read_text())["config"][
        "training"
    ]["remat"]


def test_trust_ratios_are_logged(finished):
    """Every matrix in TensorBoard, their spread in metrics.jsonl."""
    run_dir, _ = finished
    logged = []
    for text in (run_dir / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        spread = {k: v for k, v in line.items() if "trust_ratio" in k}
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
    assert loop.summarize_trust_ratios({}) == {}


class PowerCut(BaseException):
    """What ends a run without letting it tidy up."""


@pytest.mark.parametrize("after", [3, 7, 11, 12])
def test_interrupted_and_resumed_is_the_same_run(
    after, finished, small_config, shards_dir, tmp_path, monkeypatch
):
    whole, evaluation = finished
    steps = iter(range(1, 100))
    plain_step = loop.Trainer.train_step

    def failing_step(self, batch):
        results = plain_step(self, batch)
        if next(steps) == after:
            raise PowerCut
        return results

    run_dir = tmp_path / "cut"
    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "train_step", failing_step)
        with pytest.raises(PowerCut):
            run(small_config, shards_dir, run_dir)
    assert not (run_dir / "model").exists()
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


def test_a_run_that_has_diverged_is_not_saved(
    small_config, shards_dir, tmp_path, monkeypatch
):
    plain_step = loop.Trainer.train_step
    steps = iter(range(1, 100))

    def diverging_step(self, batch):
        results = plain_step(self, batch)
        if next(steps) >= 7:
            results["sum:masked_lm_loss"] = float("nan")
        return results

    # The checkpoint of step 8 comes before the log of step 10.
    monkeypatch.setattr(loop.Trainer, "train_step", diverging_step)
    with pytest.raises(UserError, match="masked_lm_loss is nan at step 8"):
        run(small_config, shards_dir, tmp_path / "run")
    assert os.listdir(tmp_path / "run/checkpoints") == ["step-4"]
    for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines():
        assert json.loads(line)["step"] <= 6


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
            train_data=shards_dir,
            eval_data=str(copy),
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
            train_data=shards_dir,
            eval_data=next_sentences,
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
        assert settings == {"sentence_objective": "nsp"}
        raise Reached

    monkeypatch.setattr(run_directory, "claim", claim)
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


@pytest.mark.slow
def test_killed_by_the_system_and_started_again(
    small_config, shards_dir, tmp_path
):
    """SIGKILL in the midst of steps; the same command ends the same run."""
    config = override(
        small_config, {"num_train_steps": 400, "save_checkpoints_steps": 20}
    )
    settings = {
        name: value
        for section in to_dict(config).values()
        for name, value in section.items()
    }
    flags = [
        f"--{name}={value}"
        for name, value in settings.items()
        if name != "vocab_size"
    ]

    def start(run_dir):
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bin.pretrain",
                f"--train_data={shards_dir}",
                f"--eval_data={shards_dir}",
                f"--run_dir={run_dir}",
                *flags,
            ],
            cwd=os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    whole = start(tmp_path / "whole")
    cut = start(tmp_path / "cut")
    deadline = time.monotonic() + 120
    while not (tmp_path / "cut/checkpoints/step-60").exists():
        assert time.monotonic() < deadline
        assert cut.poll() is None, cut.communicate()[0]
        time.sleep(0.05)
    cut.send_signal(signal.SIGKILL)
    cut.communicate()
    again = start(tmp_path / "cut")
    said = again.communicate()[0]
    assert again.returncode == 0, said
    assert "Going on from step" in said
    output = whole.communicate()[0]
    assert whole.returncode == 0, output
    for name in ("metrics.jsonl", "model/model.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (
            tmp_path / "whole" / name
        ).read_bytes(), name
