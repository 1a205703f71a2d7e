"""Evaluations of runs, read from their logs."""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json

# The metrics of a run, one line per logged step and evaluation.
METRICS_FILE = "metrics.jsonl"
# Scalars that depend on clocks.
TIMING_FILE = "timing.jsonl"
# The last evaluation beside a simple model.
COMPARISON_FILE = "baseline.json"


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


def write_comparison(
    run_dir: str, step: int, comparison: Mapping[str, Any]
) -> None:
    """Writes the comparison of a run's last evaluation with a baseline."""
    content = {"step": step, **json_metrics(comparison)}
    write_json(os.path.join(run_dir, COMPARISON_FILE), content)


def read_comparison(run_dir: str) -> tuple[dict[str, float], list[str]]:
    """Returns the baseline's metrics, and sentences on the comparison.

    Both are empty where the last evaluation has none.
    """
    path = os.path.join(run_dir, COMPARISON_FILE)
    if not files.isfile(path):
        return {}, []
    content = read_json(path)
    # A run that was extended, and has not ended again, has an older one.
    if content.get("step") != evaluations(run_dir)[-1]["step"]:
        return {}, []
    return content["metrics"], content["verdict"]
