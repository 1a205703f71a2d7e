"""A TF-IDF and linear-model baseline for a task.

A fine-tuned model that is not above it has learned little of the language.

python -m bin.baseline --task=SST-2 --data_dir=glue/SST-2
"""

from absl import flags

from albert_tf.tasks.baseline import baseline_metrics
from bin import command_line, own_rows, tasks

FLAGS = flags.FLAGS


def define_flags() -> None:
    own_rows.define_flag()
    tasks.define_flags("Task of single texts or pairs, with labels or numbers.")
    command_line.required("task", "data_dir")


def main() -> None:
    task = tasks.chosen()
    train = task.read(FLAGS.data_dir, "train")
    metrics = {}
    for ending, split in task.evaluated.items():
        held_out = task.read(FLAGS.data_dir, split)
        for name, value in baseline_metrics(task, train, held_out).items():
            metrics[f"{name}{ending}"] = value
    for warning in task.kind.warnings(train, training=True):
        print(warning)
    print(command_line.metrics_table({"baseline": metrics}))


if __name__ == "__main__":
    command_line.run(define_flags, main)
