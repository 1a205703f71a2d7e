"""Evaluations of runs, read from their logs: which is that of the model."""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.rundir.run_directory import CONFIG, recorded_run

# The metrics of a run, one line per logged step and evaluation.
METRICS_FILE = "metrics.jsonl"
# Scalars that depend on clocks.
TIMING_FILE = "timing.jsonl"
# The model's evaluation beside a simple model's.
COMPARISON_FILE = "baseline.json"
# Jobs, as in config.json, whose model is that of the best evaluation; that of
# others is of the last step.
KEEP_THE_BEST = frozenset({"finetune", "embeddings"})
# Fields of an evaluation's line in the log that are no metrics.
NO_METRICS = ("step", "split", "temperature")
# Words in the names of metrics.
_LOWER_IS_BETTER = {"loss", "perplexity", "error"}


def is_better(metric: str, value: float, than: float) -> bool:
    """Returns whether a value of a metric is better than another.

    Losses, perplexities and errors are better when lower.
    """
    if _LOWER_IS_BETTER & set(metric.split("_")):
        return value < than
    return value > than


def is_better_evaluation(
    metric: str, one: Mapping[str, Any], other: Mapping[str, Any]
) -> bool:
    """Returns whether one evaluation is better than another by a metric.

    Of equal values that of the lower loss is: where few examples are of a
    class, all evaluations may have the accuracy of the other one.
    """
    if one[metric] != other[metric]:
        return is_better(metric, one[metric], other[metric])
    return one.get("loss", math.inf) < other.get("loss", math.inf)


def json_metrics(metrics: Any) -> Any:
    """Returns metrics, also nested, with None in place of NaN and infinity."""
    if isinstance(metrics, Mapping):
        return {name: json_metrics(value) for name, value in metrics.items()}
    if isinstance(metrics, list):
        return [json_metrics(value) for value in metrics]
    if isinstance(metrics, float) and not math.isfinite(metrics):
        return None
    return metrics


def log_lines(path: str) -> Iterator[dict]:
    """Yields the complete lines of a run's log.

    Raises:
        UserError: for a damaged line before others.
    """
    with files.open(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                yield json.loads(line)
            except ValueError:
                if not next(file, None):
                    # Being written, or its run was killed.
                    return
                raise UserError(
                    f"{path}, line {number} is damaged; the run's own "
                    "command, started again, removes it."
                ) from None


def run_directories(path: str) -> list[str]:
    """Returns the run directories at a path: itself, or those in it.

    Those of --num_runs, in a directory of `path`, are found too.

    Raises:
        UserError: when there is none.
    """
    found = list(_runs_at(path, 2))
    if not found:
        raise UserError(
            f"{path} is not a run directory, nor a directory of some: no "
            f"{os.path.join(path, METRICS_FILE)}."
        )
    return found


def _runs_at(path: str, depth: int) -> Iterator[str]:
    if files.isfile(os.path.join(path, METRICS_FILE)):
        yield path
    elif depth and files.isdir(path):
        # run-10 after run-9.
        for name in sorted(files.listdir(path), key=_by_numbers):
            yield from _runs_at(os.path.join(path, name), depth - 1)


def _by_numbers(name: str) -> list[tuple[str, int]]:
    parts = re.findall(r"(\D*)(\d*)", name)
    return [(text, int(digits or 0)) for text, digits in parts]


def evaluations(run_dir: str) -> list[dict]:
    """Returns the evaluations in a run's log, with their steps.

    Raises:
        UserError: when there is none, or a damaged line before others.
    """
    path = os.path.join(run_dir, METRICS_FILE)
    if not files.isfile(path):
        raise UserError(f"{run_dir} is not a run directory: no {path}.")
    found = [line for line in log_lines(path) if line["split"] == "eval"]
    if not found:
        raise UserError(f"{path} has no evaluation yet.")
    return found


def result(run_dir: str) -> dict:
    """Returns the evaluation of a run's model, with its step.

    It is the best by the run's `best_metric`, or the last: see
    `KEEP_THE_BEST`.

    Raises:
        UserError: when there is none, or a damaged line before others.
    """
    *_, found = all_evaluations = evaluations(run_dir)
    path = os.path.join(run_dir, CONFIG)
    recorded = read_json(path) if files.isfile(path) else {}
    if recorded.get("job") not in KEEP_THE_BEST:
        return found
    metric = recorded["config"]["training"]["best_metric"]
    # A metric that is not defined is null in the log.
    defined = [e for e in all_evaluations if e[metric] is not None]
    for number, evaluation in enumerate(defined):
        if not number or is_better_evaluation(metric, evaluation, found):
            found = evaluation
    return found


def title(run_dir: str) -> str:
    """Returns a run's path, with the step of a model that is not the last."""
    step = result(run_dir)["step"]
    if step == evaluations(run_dir)[-1]["step"]:
        return run_dir
    recorded = recorded_run(run_dir)
    steps = recorded["config"]["training"]["num_train_steps"]
    return f"{run_dir}, step {step} of {steps}"


def write_comparison(
    run_dir: str, step: int, comparison: Mapping[str, Any]
) -> None:
    """Writes the comparison of a run's model, of `step`, with a baseline."""
    content = {"step": step, **json_metrics(comparison)}
    write_json(os.path.join(run_dir, COMPARISON_FILE), content)


def compared_step(run_dir: str) -> int | None:
    """Returns the step of the model that was compared; None: none was."""
    return _comparison(run_dir).get("step")


def read_comparison(run_dir: str) -> tuple[dict[str, float], list[str]]:
    """Returns the baseline's metrics, and sentences on the comparison.

    Both are empty where the model has none.
    """
    content = _comparison(run_dir)
    # A run that was extended, and has not ended again, has an older one.
    if not content or content.get("step") != result(run_dir)["step"]:
        return {}, []
    return content["metrics"], content["verdict"]


def _comparison(run_dir: str) -> dict:
    path = os.path.join(run_dir, COMPARISON_FILE)
    return read_json(path) if files.isfile(path) else {}
