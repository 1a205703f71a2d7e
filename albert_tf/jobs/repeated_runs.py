"""The same job with several seeds: the median, all values and the spread."""

import dataclasses
import math
import os
import statistics
from collections.abc import Callable

from albert_tf.config import FinetuneConfig, UserError, override
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.rundir.run_directory import CONFIG
from albert_tf.rundir.run_results import evaluations, finite, json_metrics
from albert_tf.training.job import is_better

RESULTS_FILE = "results.json"


@dataclasses.dataclass(frozen=True)
class RunResult:
    """How one run ended.

    Attributes:
        run_dir: of the run.
        seed: its own.
        last: the evaluation at its end.
        best: the best value of the metric that chooses the best model, which
            is chosen on the very examples that it is measured on.
        best_step: where that was.
    """

    run_dir: str
    seed: int
    last: dict[str, float]
    best: float
    best_step: int


@dataclasses.dataclass(frozen=True)
class Spread:
    """A measure of several runs: its values, their median and range."""

    values: list[float]
    median: float
    spread: float


@dataclasses.dataclass(frozen=True)
class RepeatedRuns:
    """Runs that differ in their seeds.

    Attributes:
        best_metric: that chooses the best model of a run.
        runs: in the order of their seeds.
    """

    best_metric: str
    runs: list[RunResult]

    def summary(self) -> dict[str, Spread]:
        """Returns every measure at the end of the runs, and the best one."""
        columns = {
            name: [run.last[name] for run in self.runs]
            for name in self.runs[0].last
        }
        columns[f"{self.best_metric} of the best checkpoint"] = [
            run.best for run in self.runs
        ]
        return {name: _spread(values) for name, values in columns.items()}

    def to_json(self) -> dict:
        """Returns all of it; null for what is not defined."""
        return {
            "best_metric": self.best_metric,
            "runs": [
                {
                    "run_dir": run.run_dir,
                    "seed": run.seed,
                    "last": json_metrics(run.last),
                    "best": finite(run.best),
                    "best_step": run.best_step,
                }
                for run in self.runs
            ],
            "summary": {
                name: {
                    "values": list(map(finite, row.values)),
                    "median": finite(row.median),
                    "spread": finite(row.spread),
                }
                for name, row in self.summary().items()
            },
        }


def _spread(values: list[float]) -> Spread:
    """Returns the median and range; NaN where a value is not defined."""
    if any(map(math.isnan, values)):
        return Spread(values, math.nan, math.nan)
    return Spread(values, statistics.median(values), max(values) - min(values))


def repeat(
    run: Callable[[FinetuneConfig, str], dict[str, float]],
    config: FinetuneConfig,
    *,
    num_runs: int,
    run_dir: str,
) -> RepeatedRuns:
    """Makes runs with the seeds seed, seed + 1 and so on.

    Each has a directory of its own, run-1 and so on; those that have been
    made to their end are not made again. `results.json` has all of it.

    Args:
        run: (settings, run directory) -> the last evaluation.
        config: the settings of all but the seed.
        num_runs: how many.
        run_dir: holds them all.

    Raises:
        UserError: when that is the directory of a single run.
    """
    if files.exists(os.path.join(run_dir, CONFIG)):
        raise UserError(
            f"{run_dir} is the directory of one run; name another for several."
        )
    runs: list[RunResult] = []
    for number in range(num_runs):
        seed = config.training.seed + number
        directory = os.path.join(run_dir, f"run-{number + 1}")
        last = run(override(config, {"seed": seed}), directory)
        best_metric = _best_metric(directory)
        best, step = _best(directory, best_metric)
        runs.append(RunResult(directory, seed, last, best, step))
        found = RepeatedRuns(best_metric, runs)
        # After each, for the next may fail.
        write_json(os.path.join(run_dir, RESULTS_FILE), found.to_json())
    return found


def _best_metric(run_dir: str) -> str:
    config = read_json(os.path.join(run_dir, CONFIG))
    return config["config"]["training"]["best_metric"]


def _best(run_dir: str, metric: str) -> tuple[float, int]:
    """Returns the best value and its step; NaN where none is defined."""
    best = (math.nan, 0)
    for values in evaluations(run_dir):
        # A measure that is not defined stands there as null.
        value = values[metric]
        if value is not None and (
            math.isnan(best[0]) or is_better(metric, value, best[0])
        ):
            best = (value, values["step"])
    return best
