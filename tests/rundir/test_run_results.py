"""Evaluations read back from a run's log."""

import json
import os

import pytest

from albert_tf.config import UserError
from albert_tf.rundir.run_results import (
    evaluations,
    is_better_evaluation,
    read_comparison,
    result,
    run_directories,
    title,
    write_comparison,
)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (None, "is not a run directory: no "),
        (
            '{"step": 1, "split": "train"}\n',
            "metrics.jsonl has no evaluation yet",
        ),
        (
            '{"step": 5, "spl\n{"step": 9, "split": "eval"}\n',
            "jsonl, line 1 is damaged; the run's",
        ),
    ],
)
def test_logs_that_cannot_be_read(tmp_path, log, message):
    if log:
        (tmp_path / "metrics.jsonl").write_text(log)
    with pytest.raises(UserError, match=message):
        evaluations(str(tmp_path))


def test_runs_are_found_in_directories_of_them(tmp_path):
    runs = [
        str(tmp_path / name) for name in ("b/run-2", "b/run-10", "deep/a", "z")
    ]
    for run in (*runs, str(tmp_path / "too/deep/run")):
        os.makedirs(run)
        open(os.path.join(run, "metrics.jsonl"), "w").close()
    # A run's own directories are none.
    os.makedirs(f"{runs[0]}/checkpoints")
    assert run_directories(str(tmp_path)) == runs
    assert run_directories(str(tmp_path / "b")) == runs[:2]
    assert run_directories(runs[3]) == runs[3:]
    with pytest.raises(
        UserError, match=r"nor a directory of some: no .*\.json"
    ):
        run_directories(f"{runs[0]}/checkpoints")


@pytest.mark.parametrize(("step", "found"), [(9, True), (5, False)])
def test_the_comparison_of_the_last_evaluation_alone(tmp_path, step, found):
    """A run that was extended may have one of its first end."""
    lines = [f'{{"step": {n}, "split": "eval"}}\n' for n in (5, 9)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    comparison = {"metrics": {"tfidf_accuracy": 0.5}, "verdict": ["better"]}
    write_comparison(str(tmp_path), step, comparison)
    expected = ({"tfidf_accuracy": 0.5}, ["better"]) if found else ({}, [])
    assert read_comparison(str(tmp_path)) == expected


@pytest.mark.parametrize(
    ("job", "metric", "values", "step"),
    [
        ("pretrain", "accuracy", [0.9, 0.8, 0.7], 3),
        ("finetune", "accuracy", [0.7, 0.9, 0.8], 2),
        ("finetune", "loss", [0.7, 0.9, 0.8], 1),
        # The first of equal ones; null is a metric that is not defined.
        ("finetune", "accuracy", [None, 0.9, 0.9], 2),
        ("finetune", "accuracy", [None, None, None], 3),
    ],
)
def test_the_evaluation_of_the_model(tmp_path, job, metric, values, step):
    lines = [
        json.dumps({"step": number, "split": "eval", metric: value})
        for number, value in enumerate(values, start=1)
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    training = {"best_metric": metric, "num_train_steps": 30}
    config = {"job": job, "config": {"training": training}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert result(str(tmp_path)) == json.loads(lines[step - 1])
    of_step = "" if step == 3 else f", step {step} of 30"
    assert title(str(tmp_path)) == f"{tmp_path}{of_step}"
    write_comparison(str(tmp_path), step, {"metrics": {}, "verdict": ["x"]})
    assert read_comparison(str(tmp_path)) == ({}, ["x"])


def test_of_equal_evaluations_that_of_the_lower_loss_is_better():
    first, second = {"f1": 0.5, "loss": 0.9}, {"f1": 0.5, "loss": 0.8}
    assert is_better_evaluation("f1", second, first)
    assert not is_better_evaluation("f1", first, second)
    assert is_better_evaluation("f1", {"f1": 0.6, "loss": 1.0}, second)
    assert is_better_evaluation("loss", second, first)
