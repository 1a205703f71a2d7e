"""A SavedModel for TensorFlow Serving, whose inputs are raw texts.

python -m bin.export --model_dir=runs/mytask/model --export_dir=export/mytask
python -m bin.export --model_dir=runs/sst2/model --export_dir=export/sst2 \\
    --precision=int8 --task=SST-2 --data_dir=glue/SST-2
"""

import shlex
import sys

from absl import flags

from albert_tf.config import Log, shown_metric, silent
from albert_tf.tasks.base import Task
from bin import command_line, own_rows, tasks

FLAGS = flags.FLAGS


def define_flags() -> None:
    own_rows.define_flag()
    flags.DEFINE_string("model_dir", None, command_line.MODEL_HELP)
    flags.DEFINE_string(
        "export_dir", None, "The model goes to <export_dir>/<version>."
    )
    flags.DEFINE_integer(
        "version",
        None,
        "Version to write; by default the next that is free.",
        lower_bound=1,
    )
    flags.DEFINE_enum(
        "precision",
        "float32",
        ["float32", "bfloat16", "int8"],
        "bfloat16: weights and arithmetic, for processors that have it. int8: "
        "the weights alone.",
    )
    flags.DEFINE_integer(
        "micro_batch_tokens",
        256,
        "Tokens of a batch computed together, of rows of similar length: for "
        "each core of a CPU; 16384 suits a GPU.",
        lower_bound=1,
        upper_bound=2**31 - 1,
    )
    tasks.define_flags(
        "Task to evaluate the exported model on, beside the one in float32, "
        "with --data_dir. Default: that of the model."
    )
    command_line.required("model_dir", "export_dir")


def _metrics(task: Task, precision: str, log: Log) -> dict[str, float]:
    from albert_tf.cluster.environment import usable_cpus
    from albert_tf.interchange.export.exported_weights import PRECISIONS
    from albert_tf.jobs.task_evaluation import evaluate_task

    with command_line.progress(f"examples, {precision}") as progress:
        return evaluate_task(
            [FLAGS.model_dir],
            task,
            FLAGS.data_dir,
            split=next(iter(task.evaluated.values())),
            batch_size=32,
            workers=usable_cpus(),
            load=PRECISIONS[precision].load,
            log=log,
            progress=progress,
        ).metrics


def main() -> None:
    task = tasks.chosen_if_any(FLAGS.model_dir)
    command_line.load_tensorflow()
    from albert_tf.cluster.environment import source_commit
    from albert_tf.interchange.export.exported_weights import PRECISIONS
    from albert_tf.interchange.export.saved_model import export_saved_model

    origin = {"command": f"`{shlex.join(sys.orig_argv)}`"}
    if commit := source_commit():
        origin["commit"] = commit
    loaded = PRECISIONS[FLAGS.precision].load(FLAGS.model_dir)
    if task:
        task = tasks.divided_as_in_training(task, [FLAGS.model_dir])
        columns = {"float32": _metrics(task, "float32", print)}
        if FLAGS.precision not in columns:
            # The lines on the examples are the same.
            columns[FLAGS.precision] = _metrics(task, FLAGS.precision, silent)
        print(command_line.metrics_table(columns))
        for precision, metrics in columns.items():
            origin[f"{FLAGS.task} dev, {precision}"] = ", ".join(
                f"{metric} {shown_metric(value)}"
                for metric, value in metrics.items()
            )
    path = export_saved_model(
        loaded,
        FLAGS.export_dir,
        version=FLAGS.version,
        precision=FLAGS.precision,
        micro_batch_tokens=FLAGS.micro_batch_tokens,
        origin=origin,
    )
    print(f"Exported to {path}; {path}/README.md lists its signatures.")


if __name__ == "__main__":
    command_line.run(define_flags, main)
