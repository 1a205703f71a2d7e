"""What runs have learned: the last evaluation of each, in one table

python -m bin.show_results --run_dirs=runs/tiny,runs/mytask
"""

import json
import os

from absl import flags

from albert_tf import files
from albert_tf.config import UserError
from bin import command_line
from bin.results_table import results_table

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_list("run_dirs", None, "Run directories, comma-separated.")
    command_line.required("run_dirs")


def last_evaluation(run_dir: str) -> dict[str, float]:
    """Returns the last evaluation in a run's metrics.jsonl."""
    path = os.path.join(run_dir, "metrics.jsonl")
    if not files.isfile(path):
        raise UserError(f"{run_dir} is not a run directory: no {path}.")
    evaluations = []
    with files.open(path, "r") as file:
        for line in file:
            try:
                values = json.loads(line)
            except ValueError:
                # The last line of a run that is being written, or was killed.
                break
            if values["split"] == "eval":
                evaluations.append(values)
    if not evaluations:
        raise UserError(f"{path} has no evaluation yet.")
    return evaluations[-1]


def main() -> None:
    """Prints a table with the rows of each run."""
    print(
        results_table(
            {run_dir: last_evaluation(run_dir) for run_dir in FLAGS.run_dirs}
        )
    )


if __name__ == "__main__":
    command_line.run(define_flags, main)
