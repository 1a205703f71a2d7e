"""The last evaluation of each run, in one table.

python -m bin.show_results --run_dirs=runs/tiny,runs/mytask
"""

from absl import flags

from albert_tf.rundir.run_results import evaluations
from bin import command_line
from bin.results_table import results_table

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_list("run_dirs", None, "Run directories, comma-separated.")
    command_line.required("run_dirs")


def main() -> None:
    """Prints a table with the rows of each run."""
    print(
        results_table(
            {run_dir: evaluations(run_dir)[-1] for run_dir in FLAGS.run_dirs}
        )
    )


if __name__ == "__main__":
    command_line.run(define_flags, main)
