"""Runs with several seeds, and results.json."""

import json
import math
import pathlib
import statistics

import pytest

from albert_tf.config import FinetuneConfig, UserError, override
from albert_tf.jobs.repeated_runs import (
    RESULTS_FILE,
    RepeatedRuns,
    RunResult,
    cross_validate,
    repeat,
)
from albert_tf.rundir.run_results import write_comparison

# Accuracies at each evaluation, by seed.
ACCURACIES = {7: [0.5, 0.9, 0.8], 8: [0.6, 0.6, 0.7], 9: [None, 0.2, 0.1]}
# The steps of the best ones.
STEPS = {7: 20, 8: 30, 9: 20}


CONFIG = override(FinetuneConfig(), {"seed": 7})


def fake_run(config, run_dir):
    directory = pathlib.Path(run_dir)
    directory.mkdir(parents=True)
    values = ACCURACIES[config.training.seed]
    lines = [{"step": 5, "split": "train", "loss": 1.0}]
    for number, accuracy in enumerate(values, start=1):
        lines.append(
            {"step": 10 * number, "split": "eval", "accuracy": accuracy}
        )
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (directory / "metrics.jsonl").write_text(text + '{"step": 40, "spl')
    seed = config.training.seed
    settings = {"training": {"best_metric": "accuracy", "seed": seed}}
    (directory / "config.json").write_text(
        json.dumps({"job": "finetune", "config": settings})
    )
    best = max(value for value in values if value is not None)
    # No metric: it is in no summary.
    return {"loss": 1.0 / seed, "accuracy": best, "temperature": 1.5}


def test_median_spread_and_last(tmp_path):
    found = repeat(fake_run, CONFIG, num_runs=3, run_dir=str(tmp_path))
    results = [(run.seed, run.step, run.last) for run in found.runs]
    assert results == [(7, 20, 0.8), (8, 30, 0.7), (9, 20, 0.1)]
    summary = found.summary()
    assert summary["accuracy"] == {
        "values": [0.9, 0.7, 0.2],
        "mean": pytest.approx(0.6),
        "deviation": pytest.approx(statistics.stdev([0.9, 0.7, 0.2])),
        "median": 0.7,
        "spread": pytest.approx(0.7),
    }
    assert summary["accuracy of the last step"]["values"] == [0.8, 0.7, 0.1]
    assert [*summary] == ["loss", "accuracy", "accuracy of the last step"]
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert written == found.to_json()
    assert written["runs"][1]["run_dir"] == f"{tmp_path}/run-2"


def test_undefined_metrics_are_null(tmp_path):
    def undefined(config, run_dir):
        fake_run(config, run_dir)
        seed = config.training.seed
        return {"accuracy": math.nan if seed == 8 else 1.0 / seed}

    results = repeat(undefined, CONFIG, num_runs=3, run_dir=str(tmp_path))
    assert math.isnan(results.summary()["accuracy"]["median"])
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert written["runs"][1]["evaluation"] == {"accuracy": None}
    assert written["summary"]["accuracy"] == {
        "values": [1 / 7, None, 1 / 9],
        "mean": None,
        "deviation": None,
        "median": None,
        "spread": None,
    }


def test_a_metric_that_one_run_lacks():
    evaluations = [{"f1": 1.0}, {"f1": 2.0, "NoAns_f1": 3.0}]
    runs = [RunResult("", 0, each, 1, 1.0, []) for each in evaluations]
    row = RepeatedRuns("f1", runs).to_json()["summary"]["NoAns_f1"]
    assert row["values"] == [None, 3.0] and row["mean"] is None


def test_what_is_finished_is_kept_when_the_next_run_fails(tmp_path):
    def failing(config, run_dir):
        if config.training.seed == 8:
            raise KeyboardInterrupt
        return fake_run(config, run_dir)

    with pytest.raises(KeyboardInterrupt):
        repeat(failing, CONFIG, num_runs=3, run_dir=str(tmp_path))
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert [run["seed"] for run in written["runs"]] == [7]


def test_the_directory_of_a_single_run(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="is the directory of one run; name an"):
        repeat(fake_run, FinetuneConfig(), num_runs=2, run_dir=str(tmp_path))


def test_the_results_of_folds_are_not_replaced_by_those_of_runs(tmp_path):
    (tmp_path / "fold-1").mkdir()
    with pytest.raises(UserError, match="holds folds, whose results.json woul"):
        repeat(fake_run, FinetuneConfig(), num_runs=2, run_dir=str(tmp_path))


def test_the_comparison_of_each_run_and_of_the_median_one(tmp_path):
    def compared(config, run_dir):
        evaluation = fake_run(config, run_dir)
        # Undefined in one of them.
        simple = math.nan if run_dir.endswith("3") else 0.5
        metrics = {"tfidf_accuracy": simple}
        comparison = {"metrics": metrics, "verdict": [run_dir]}
        write_comparison(run_dir, STEPS[config.training.seed], comparison)
        return evaluation

    results = repeat(compared, CONFIG, num_runs=3, run_dir=str(tmp_path))
    assert results.median_run().verdict == [f"{tmp_path}/run-2"]
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    values = written["summary"]["tfidf_accuracy"]["values"]
    assert values == [0.5, 0.5, None]
    assert written["median_run"] == f"{tmp_path}/run-2"
    assert written["runs"][0]["verdict"] == [f"{tmp_path}/run-1"]


@pytest.mark.parametrize(
    ("metric", "values", "seed"),
    [
        # The worse of the two in the middle.
        ("accuracy", [0.9, 0.7, 0.8, 0.6], 2),
        ("loss", [0.9, 0.7, 0.8, 0.6], 3),
        ("accuracy", [0.9, math.nan, 0.8], 3),
    ],
)
def test_the_median_run(metric, values, seed):
    runs = [
        RunResult("", number, {metric: value}, 1, value, [])
        for number, value in enumerate(values, start=1)
    ]
    assert RepeatedRuns(metric, runs).median_run().seed == seed


def test_a_run_for_each_fold(tmp_path):
    calls = []

    def run(fold, run_dir):
        calls.append((fold, run_dir))
        return fake_run(override(CONFIG, {"seed": 6 + fold}), run_dir)

    results = cross_validate(run, folds=3, run_dir=str(tmp_path))
    assert calls == [(n, f"{tmp_path}/fold-{n}") for n in (1, 2, 3)]
    assert results.summary()["accuracy"]["values"] == [0.9, 0.7, 0.2]
    # One of them has no deviation.
    one = RepeatedRuns("accuracy", results.runs[:1])
    assert one.summary()["accuracy"]["deviation"] == 0.0
