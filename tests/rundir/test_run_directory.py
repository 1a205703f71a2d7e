"""Ownership and locking of run directories."""

import copy
import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from albert_tf.config import (
    FinetuneConfig,
    ModelConfig,
    PretrainConfig,
    RuntimeConfig,
    UserError,
    override,
    to_dict,
)
from albert_tf.io.json_files import read_json
from albert_tf.jobs.epochs import with_steps
from albert_tf.rundir.run_directory import (
    check_usable,
    claim,
    extended,
    locked,
    record_changes,
)

ROOT = Path(__file__).resolve().parents[2]


def described(**changes):
    config = override(PretrainConfig(), {"num_train_steps": 100, **changes})
    return {"job": "pretrain", "config": to_dict(config)}


def test_settings_that_may_change_are_recorded(tmp_path):
    run_dir = str(tmp_path)
    with locked(run_dir):
        assert os.listdir(run_dir) == ["lock"]
        assert claim(run_dir, described()) == {}
    assert os.listdir(run_dir) == ["config.json"]
    other = described(log_steps=7, on_nonfinite="skip", remat="full")
    changes = claim(run_dir, other)
    assert changes == {
        "log_steps": [100, 7],
        "on_nonfinite": ["stop", "skip"],
        "remat": ["none", "full"],
    }
    record_changes(run_dir, other, changes, 40)
    assert claim(run_dir, other) == {}
    last = described(log_steps=7, remat="full")
    record_changes(run_dir, last, claim(run_dir, last), 60)
    assert read_json(tmp_path / "config.json") == last | {
        "changes": [
            {"after_step": 40, "settings": changes},
            {"after_step": 60, "settings": {"on_nonfinite": ["skip", "stop"]}},
        ]
    }


@pytest.mark.parametrize(
    ("job", "config", "others"),
    [
        ("pretrain", PretrainConfig(), {}),
        ("finetune", FinetuneConfig(), {"model": to_dict(ModelConfig())}),
    ],
)
def test_settings_that_an_earlier_version_lacked_or_had_alone(
    tmp_path, job, config, others
):
    now = {"job": job, "config": to_dict(config), **others}
    then = copy.deepcopy(now)
    for section in (*then["config"].values(), *map(then.get, others)):
        del section[max(section)]
    del then["config"]["training"]["log_steps"]
    # One that is no more.
    then["config"]["training"]["pack_sequences"] = True
    claim(str(tmp_path), then)
    assert claim(str(tmp_path), now) == {}
    now["config"]["training"] |= {"log_steps": 7}
    assert claim(str(tmp_path), now) == {"log_steps": [100, 7]}
    now["config"]["training"] |= {"xla": True}
    with pytest.raises(UserError, match="xla: True here, False there"):
        claim(str(tmp_path), now)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="holds a run of another program"):
        claim(str(tmp_path), now)


@pytest.mark.parametrize(
    ("changes", "extends", "message"),
    [
        # The original command of an extended run.
        (
            {"num_train_steps": 50},
            False,
            "resume it, or add --extend_to_steps=100, or another",
        ),
        (
            {"log_steps": 7, "learning_rate": 0.5},
            False,
            "(config.optimizer.learning_rate: 0.5 here, 0.00176 there); give",
        ),
        (
            {"num_train_steps": 200},
            False,
            "num_train_steps: 200 here, 100 there); give the same settings and "
            "data to resume it, the same with --extend_to_steps=200 to extend",
        ),
        ({"num_train_steps": 90}, True, "(it has 100 steps already); give"),
        ({"num_train_steps": 200, "seed": 1}, True, "(config.training.seed: 1"),
    ],
)
def test_settings_that_may_not_change_are_refused(
    tmp_path, changes, extends, message
):
    claim(str(tmp_path), described())
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(UserError) as error:
        claim(str(tmp_path), described(**changes), extends=extends)
    assert message in str(error.value)
    assert (tmp_path / "config.json").read_bytes() == before


def test_the_run_of_another_job_is_refused_without_its_settings(tmp_path):
    claim(str(tmp_path), {**described(), "train_data": ["a"]})
    now = {"job": "finetune", "config": to_dict(FinetuneConfig())}
    with pytest.raises(UserError) as error:
        claim(str(tmp_path), {**now, "model": to_dict(ModelConfig())})
    assert str(error.value) == (
        f"{tmp_path} holds a run of pretraining, and this is fine-tuning; "
        "choose another --run_dir."
    )


def test_of_many_differences_the_first_are_listed(tmp_path):
    labels = [f"label-{number}" for number in range(500)]
    now = {"job": "finetune", "config": to_dict(FinetuneConfig())}
    claim(str(tmp_path), {**now, "labels": labels, "task": "CoLA"})
    for name in ("beta_1", "beta_2", "epsilon", "learning_rate", "ema_decay"):
        now["config"]["optimizer"][name] = 0.5
    with pytest.raises(UserError) as error:
        claim(str(tmp_path), {**now, "labels": ["a"], "task": "SST-2"})
    message = str(error.value)
    assert "(task: 'SST-2' here, 'CoLA' there; config." in message
    assert message.count(" here, ") == 5
    assert "and 2 others); give the same settings" in message
    assert len(message) < 600


def test_changed_data_are_named(tmp_path):
    now = {"job": "finetune", "config": to_dict(FinetuneConfig())}
    there = {
        "dev_examples": ["a" * 64],
        "train_examples": "b" * 64,
        "num_examples": {"train": 12},
        "held_out": {"dev_fraction": 0.1},
    }
    claim(str(tmp_path), {**now, **there})
    here = {"dev_examples": ["c" * 64], "train_examples": "d" * 64}
    with pytest.raises(UserError) as error:
        claim(str(tmp_path), {**there, **now, **here})
    of_data = (
        "the training data changed since the run began; the dev data changed "
        "since the run began"
    )
    after = "); give the same settings and data to resume it, or another"
    assert f"({of_data}{after}" in str(error.value)
    # Another number of examples has other steps, which are not the reason.
    now["config"]["training"]["num_train_steps"] = 9
    here["num_examples"] = {"train": 13}
    with pytest.raises(UserError) as error:
        claim(str(tmp_path), {**there, **now, **here})
    counted = "num_examples.train: 13 here, 12 there; config.training.num_train"
    assert f"({of_data}; {counted}_steps: 9 here" in str(error.value)
    here["held_out"] = {"dev_fraction": 0.2}
    del here["num_examples"]
    with pytest.raises(UserError) as error:
        claim(str(tmp_path), {**there, **now, **here})
    assert str(error.value) == (
        f"{tmp_path} holds a run of another configuration (held_out."
        "dev_fraction: 0.2 here, 0.1 there; config.training.num_train_steps: 9 "
        f"here, 0 there{after} --run_dir."
    )


def test_an_earlier_version_counted_no_examples(tmp_path):
    claim(str(tmp_path), described())
    assert claim(str(tmp_path), {**described(), "num_examples": {"a": 1}}) == {}


def of_epochs(**settings):
    """A run of 100 examples, with the steps and warm-up of its epochs."""
    config = override(FinetuneConfig(), {"train_batch_size": 10, **settings})
    return with_steps(config, config.finetuning, 100, "loss")


def test_parts_of_an_epoch_are_not_rounded_up_by_a_step():
    """1.1 * 100 is a little more than 110 in floating point."""
    assert of_epochs(num_train_epochs=1.1).training.num_train_steps == 11


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"num_train_epochs": 4.0}, 40),
        ({"num_train_epochs": 2.0}, None),
        ({"num_train_steps": 50}, 50),
        ({"num_train_epochs": 4.0, "train_batch_size": 5}, None),
        ({"train_batch_size": 5}, None),
        ({"num_train_epochs": 4.0, "learning_rate": 0.5}, None),
    ],
)
def test_the_advice_to_extend_a_run_can_be_followed(tmp_path, changes, steps):
    def claimed(config, **options):
        whole = {"job": "finetune", "config": to_dict(config)}
        return claim(str(tmp_path), whole, **options)

    claimed(of_epochs(num_train_epochs=3.0))
    with pytest.raises(UserError) as error:
        claimed(of_epochs(**{"num_train_epochs": 3.0, **changes}))
    advised = re.search(
        r"the same with --extend_to_steps=(\d+)", str(error.value)
    )
    assert (advised and int(advised[1])) == steps
    assert ("extend_to_steps" in str(error.value)) == bool(steps)
    if advised:
        runtime = RuntimeConfig(extend_to_steps=steps)
        longer = extended(of_epochs(num_train_epochs=3.0), runtime)
        assert claimed(longer, extends=True) == {"num_train_steps": [30, steps]}


def test_another_directory_is_refused_before_the_data_are_read(tmp_path):
    check_usable(str(tmp_path / "new"))
    (tmp_path / "notes.txt").write_text("mine")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(UserError, match="exists and is not a run directo"):
            check_usable(str(path))


def test_a_run_of_other_data_is_not_to_be_extended(tmp_path):
    claim(str(tmp_path), {**described(), "train_examples": "a"})
    other = {**described(num_train_steps=200), "train_examples": "b"}
    with pytest.raises(UserError, match="resume it, or another --run_dir"):
        claim(str(tmp_path), other)


def test_extending_a_run_that_does_not_exist(tmp_path):
    with pytest.raises(UserError, match="for a started run, and .* holds non"):
        claim(str(tmp_path), described(), extends=True)
    assert os.listdir(tmp_path) == []


def test_an_extension_is_longer_than_the_run():
    config = override(PretrainConfig(), {"num_train_steps": 100})
    assert extended(config, RuntimeConfig()) is config
    longer = extended(config, RuntimeConfig(extend_to_steps=101))
    assert longer.training.num_train_steps == 101
    with pytest.raises(UserError, match="=100 is not more than the 100 steps"):
        extended(config, RuntimeConfig(extend_to_steps=100))


@pytest.mark.parametrize("name", ["lock", "config.json.tmp-71"])
def test_leftovers_of_a_killed_job_are_accepted(tmp_path, name):
    (tmp_path / name).write_text("")
    with locked(str(tmp_path)):
        claim(str(tmp_path), {})
    assert "config.json" in os.listdir(tmp_path)


def enter_lock(run_dir):
    with locked(run_dir):
        pass


def test_a_foreign_directory_is_refused_unchanged(tmp_path):
    (tmp_path / "letter.txt").write_text("Dear")
    for start in (lambda path: claim(path, {}), enter_lock):
        with pytest.raises(UserError, match="is not a run directory"):
            start(str(tmp_path))
    assert os.listdir(tmp_path) == ["letter.txt"]
    with pytest.raises(UserError, match="is not a run directory"):
        claim(str(tmp_path / "letter.txt"), {})


def test_a_directory_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file" / "run")
    message = (
        "cannot be used as run directory: Not a directory. Give a --run_dir"
    )
    for start in (lambda path: claim(path, {}), enter_lock):
        with pytest.raises(UserError, match=message):
            start(below)
    run_dir = str(tmp_path / "run")
    claim(run_dir, {})

    def refusing(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    # A resumed run does not write config.json: the lock shows the fault.
    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(UserError, match="directory: Read-only file system"):
        enter_lock(run_dir)


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("pretrain", ["--train_data=a", "--eval_data=a"]),
        ("finetune", ["--task=MRPC", "--data_dir=a", "--init_from=a"]),
    ],
)
def test_a_second_job_is_refused_before_tensorflow_is_loaded(
    tmp_path, program, flags
):
    # Loading it would fail.
    (tmp_path / "tensorflow.py").write_text("raise ImportError")
    with locked(str(tmp_path / "run")):
        second = subprocess.run(
            [
                *(sys.executable, "-m", f"bin.{program}"),
                *flags,
                f"--run_dir={tmp_path}/run",
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
    assert second.returncode == 1
    assert second.stderr.startswith(
        f"{program}: {tmp_path}/run is in use by process "
    )
