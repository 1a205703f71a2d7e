"""Several seeds: what is told of them."""

import json
import math
import pathlib

import pytest

from albert_tf.config import FinetuneConfig, UserError, override
from albert_tf.training.repeated_runs import RESULTS_FILE, repeat
from albert_tf.training.run_results import evaluations

# By seed: accuracy at each evaluation.
ACCURACIES = {7: [0.5, 0.9, 0.8], 8: [0.6, 0.6, 0.7], 9: [None, 0.2, 0.1]}


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
    settings = {"training": {"best_metric": "accuracy"}}
    (directory / "config.json").write_text(json.dumps({"config": settings}))
    return {"loss": 1.0 / config.training.seed, "accuracy": values[-1]}


def test_median_spread_and_best(tmp_path):
    found = repeat(
        fake_run,
        override(FinetuneConfig(), {"seed": 7}),
        num_runs=3,
        run_dir=str(tmp_path),
    )
    assert [run.seed for run in found.runs] == [7, 8, 9]
    assert [(run.best, run.best_step) for run in found.runs] == [
        (0.9, 20),
        (0.7, 30),
        (0.2, 20),
    ]
    summary = found.summary()
    assert list(summary) == [
        "loss",
        "accuracy",
        "accuracy of the best checkpoint",
    ]
    accuracy = summary["accuracy"]
    assert accuracy.values == [0.8, 0.7, 0.1]
    assert accuracy.median == 0.7
    assert accuracy.spread == pytest.approx(0.7)
    assert summary["accuracy of the best checkpoint"].median == 0.7
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert written == found.to_json()
    assert written["runs"][1]["run_dir"] == f"{tmp_path}/run-2"
    assert written["summary"]["accuracy"]["median"] == 0.7


def test_what_is_not_defined_is_null(tmp_path):
    def undefined(config, run_dir):
        fake_run(config, run_dir)
        return {"loss": 1.0, "accuracy": math.nan}

    found = repeat(
        undefined,
        override(FinetuneConfig(), {"seed": 9}),
        num_runs=1,
        run_dir=str(tmp_path),
    )
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert written["runs"][0]["last"] == {"loss": 1.0, "accuracy": None}
    assert found.runs[0].best == 0.2


def test_a_median_of_what_is_not_always_defined_is_not_defined(tmp_path):
    def undefined(config, run_dir):
        fake_run(config, run_dir)
        seed = config.training.seed
        return {"accuracy": math.nan if seed == 8 else 1.0 / seed}

    found = repeat(
        undefined,
        override(FinetuneConfig(), {"seed": 7}),
        num_runs=3,
        run_dir=str(tmp_path),
    )
    accuracy = found.summary()["accuracy"]
    assert math.isnan(accuracy.median)
    assert math.isnan(accuracy.spread)
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert written["summary"]["accuracy"] == {
        "values": [1 / 7, None, 1 / 9],
        "median": None,
        "spread": None,
    }


def test_what_is_finished_is_kept_when_the_next_run_fails(tmp_path):
    def failing(config, run_dir):
        if config.training.seed == 8:
            raise KeyboardInterrupt
        return fake_run(config, run_dir)

    with pytest.raises(KeyboardInterrupt):
        repeat(
            failing,
            override(FinetuneConfig(), {"seed": 7}),
            num_runs=3,
            run_dir=str(tmp_path),
        )
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert [run["seed"] for run in written["runs"]] == [7]


def test_the_directory_of_a_single_run(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="is the directory of one run; name an"):
        repeat(fake_run, FinetuneConfig(), num_runs=2, run_dir=str(tmp_path))


def test_logs_without_an_evaluation(tmp_path):
    with pytest.raises(UserError, match="is not a run directory: no "):
        evaluations(str(tmp_path))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "split": "train"}\n')
    with pytest.raises(UserError, match="metrics.jsonl has no evaluation yet"):
        evaluations(str(tmp_path))
