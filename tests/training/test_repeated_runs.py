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
    return {"loss": 1.0 / config.training.seed, "accuracy": values[-1]}


def test_median_spread_and_best(tmp_path):
    found = repeat(
        fake_run,
        override(FinetuneConfig(), {"seed": 7}),
        num_runs=3,
        run_dir=str(tmp_path),
        best_metrics=["f1", "accuracy"],
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
        best_metrics=["accuracy"],
    )
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert written["runs"][0]["last"] == {"loss": 1.0, "accuracy": None}
    assert found.runs[0].best == 0.2


def test_logs_without_an_evaluation(tmp_path):
    with pytest.raises(UserError, match="is not a run directory: no "):
        evaluations(str(tmp_path))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "split": "train"}\n')
    with pytest.raises(UserError, match="metrics.jsonl has no evaluation yet"):
        evaluations(str(tmp_path))
