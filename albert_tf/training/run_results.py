"""What runs have reached, read from their logs."""

import json
import math
import os
from collections.abc import Mapping

from albert_tf import files
from albert_tf.config import UserError

# What a run computes, a line for each log and evaluation.
METRICS_FILE = "metrics.jsonl"


def json_measures(measures: Mapping[str, float]) -> dict[str, float | None]:
    """Returns measures as JSON can hold them: null where not defined."""
    return {name: finite(value) for name, value in measures.items()}


def finite(value: float) -> float | None:
    """Returns a number, None where it is not finite."""
    return value if math.isfinite(value) else None


def evaluations(run_dir: str) -> list[dict]:
    """Returns the evaluations in a run's log, with their steps.

    Raises:
        UserError: when there is no log, or no evaluation in it.
    """
    path = os.path.join(run_dir, METRICS_FILE)
    if not files.isfile(path):
        raise UserError(f"{run_dir} is not a run directory: no {path}.")
    found = []
    with files.open(path, "r") as file:
        for line in file:
            try:
                values = json.loads(line)
            except ValueError:
                # The last line of a run that is being written, or was killed.
                break
            if values["split"] == "eval":
                found.append(values)
    if not found:
        raise UserError(f"{path} has no evaluation yet.")
    return found
