"""A TF-IDF and linear-model baseline for a task.

A fine-tuned model that is not above it has learned little of the language.

python -m bin.baseline --task=SST-2 --data_dir=glue/SST-2
"""

from absl import flags

from albert_tf.tasks.baseline import baseline_metrics
from bin import command_line, tasks

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the program's flags."""
    tasks.define_flags("Task of single texts or pairs, with labels or numbers.")
    flags.DEFINE_string("data_dir", None, "Directory of the task's files.")
    command_line.required("task", "data_dir")


def main() -> None:
    """Trains the baseline and prints its metrics on every split."""
    task = tasks.chosen()
    train = task.read(FLAGS.data_dir, "train")
    rows = []
    for ending, split in task.evaluated.items():
        held_out = task.read(FLAGS.data_dir, split)
        rows += [
            [f"{name}{ending}", f"{value:.4f}"]
            for name, value in baseline_metrics(task, train, held_out).items()
        ]
    print(command_line.format_table(rows, ["metric", "baseline"]))


if __name__ == "__main__":
    command_line.run(define_flags, main)
