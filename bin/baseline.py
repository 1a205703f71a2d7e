"""The simple model of a task, that bin.finetune compares its own with.

TF-IDF with a linear model, or what comes near it for questions, choices and
tags. A fine-tuned model that is not above it has learned little of the
language.

python -m bin.baseline --task=SST-2 --data_dir=glue/SST-2
"""

from absl import flags

from albert_tf.tasks.baselines.table import baseline_scores
from bin import command_line, own_rows, tasks

FLAGS = flags.FLAGS


def define_flags() -> None:
    own_rows.define_flag()
    tasks.define_flags("Task of the simple model.")
    tasks.define_feature_flags()
    command_line.required("data_dir")


def main() -> None:
    task = tasks.chosen()
    train = task.read_labelled(FLAGS.data_dir, "train")
    metrics = {}
    for ending, split in task.evaluated.items():
        held_out = task.read_labelled(FLAGS.data_dir, split)
        scored = baseline_scores(
            task, train, held_out, cache_dir=FLAGS.feature_cache
        )
        found = task.kind.compute_metrics(scored, task.metrics)
        metrics |= {f"{name}{ending}": found[name] for name in found}
    for warning in task.kind.warnings(train, training=True):
        print(warning)
    print(command_line.metrics_table({"baseline": metrics}))


if __name__ == "__main__":
    command_line.run(define_flags, main)
