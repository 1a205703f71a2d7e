"""One job with several seeds or folds: mean, median, range and all values."""

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.config import FinetuneConfig, override, require
from albert_tf.io import files
from albert_tf.io.json_files import write_json
from albert_tf.rundir.run_directory import CONFIG, recorded_run
from albert_tf.rundir.run_results import (
    NO_METRICS,
    evaluations,
    is_better,
    json_metrics,
    read_comparison,
    result,
)

RESULTS_FILE = "results.json"


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The result of one run; a row of `runs` in results.json.

    `evaluation` is that of the run's model, the best one, of `step`. It is
    optimistic: the model was chosen on the examples that it is measured on.
    `last` is the `best_metric` of the last evaluation, and `verdict` the
    comparison with a simple model in words.
    """

    run_dir: str
    seed: int
    evaluation: dict[str, float]
    step: int
    last: float
    verdict: list[str]


@dataclasses.dataclass(frozen=True)
class RepeatedRuns:
    """Runs that differ in their seeds, or their folds, in this order."""

    best_metric: str
    runs: list[RunResult]

    def summary(self) -> dict[str, dict[str, Any]]:
        """Returns statistics of each metric, and its `values`.

        `mean`, `deviation` (the standard deviation of a sample), `median` and
        `spread` (range). They are those of the models; of `best_metric` also
        of the last steps. NaN where a run lacks a metric, such as that of
        unanswerable questions, of which its fold has none.
        """
        names = dict.fromkeys(n for run in self.runs for n in run.evaluation)
        columns = {
            name: [run.evaluation.get(name, math.nan) for run in self.runs]
            for name in names
            if name not in NO_METRICS
        }
        columns[f"{self.best_metric} of the last step"] = [
            run.last for run in self.runs
        ]
        return {
            name: {
                "values": values,
                "mean": float(np.mean(values)),
                "deviation": _deviation(values),
                "median": float(np.median(values)),
                "spread": float(np.ptp(values)),
            }
            for name, values in columns.items()
        }

    def median_run(self) -> RunResult:
        """Returns the run whose model has the median of `best_metric`.

        Of an even number of runs it is the worse of the two in the middle; a
        metric that is not defined is the worst.
        """
        name = self.best_metric
        sign = 1 if is_better(name, 1.0, 0.0) else -1

        def quality(run: RunResult) -> float:
            value = run.evaluation[name]
            return -math.inf if math.isnan(value) else sign * value

        return sorted(self.runs, key=quality)[(len(self.runs) - 1) // 2]

    def to_json(self) -> dict:
        """Returns the content of results.json; null for undefined numbers."""
        rest = {
            "summary": self.summary(),
            "median_run": self.median_run().run_dir,
        }
        return json_metrics(dataclasses.asdict(self) | rest)


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def repeat(
    run: Callable[[FinetuneConfig, str], dict[str, float]],
    config: FinetuneConfig,
    *,
    num_runs: int,
    run_dir: str,
) -> RepeatedRuns:
    """Runs a job with the seeds seed, seed + 1 and so on.

    Each has its own directory, run-1 and so on, so finished runs are not
    repeated. `run` takes settings and a run directory, and returns the
    evaluation of its model.
    """

    def with_seed(number: int, directory: str) -> dict[str, float]:
        seed = config.training.seed + number - 1
        return run(override(config, {"seed": seed}), directory)

    return _run_all(with_seed, "run", num_runs, run_dir)


def cross_validate(
    run: Callable[[int, str], dict[str, float]], *, folds: int, run_dir: str
) -> RepeatedRuns:
    """Runs a job for each fold, in the directories fold-1 and so on.

    `run` takes the number of a fold, from 1, and a run directory; see
    `repeat`.
    """
    return _run_all(run, "fold", folds, run_dir)


def _run_all(
    run: Callable[[int, str], dict[str, float]],
    name: str,
    count: int,
    run_dir: str,
) -> RepeatedRuns:
    require(
        not files.exists(os.path.join(run_dir, CONFIG)),
        f"{run_dir} is the directory of one run; name another for several.",
    )
    other = {"run": "fold", "fold": "run"}[name]
    require(
        not files.exists(os.path.join(run_dir, f"{other}-1")),
        f"{run_dir} holds {other}s, whose {RESULTS_FILE} would be replaced; "
        f"name another directory for {name}s.",
    )
    runs: list[RunResult] = []
    for number in range(1, count + 1):
        directory = os.path.join(run_dir, f"{name}-{number}")
        evaluation = run(number, directory)
        simple, verdict = read_comparison(directory)
        # A metric that is not defined is null in files.
        metrics = {n: math.nan if v is None else v for n, v in simple.items()}
        recorded = recorded_run(directory)
        training = recorded["config"]["training"]
        best_metric = training["best_metric"]
        last = evaluations(directory)[-1][best_metric]
        runs.append(
            RunResult(
                directory,
                training["seed"],
                evaluation | metrics,
                result(directory)["step"],
                math.nan if last is None else last,
                verdict,
            )
        )
        results = RepeatedRuns(best_metric, runs)
        # Results are written after each run, for the next may fail.
        write_json(os.path.join(run_dir, RESULTS_FILE), results.to_json())
    return results
