"""Metrics and predictions of a model, or several, on held-out examples.

python -m bin.evaluate --data_dir=glue/MRPC --model_dir=runs/mrpc/model \\
    --output_dir=runs/mrpc/evaluation
python -m bin.evaluate --data_dir=glue/MRPC --split=test \\
    --model_dir=runs/a,runs/b,runs/c --submission=glue.zip
python -m bin.evaluate --task=pretraining --data_dir=shards \\
    --model_dir=runs/tiny/model
"""

import contextlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from absl import flags

from albert_tf.config import (
    MaskingConfig,
    require,
    setting_fields,
    shown_metric,
)
from albert_tf.io import files
from albert_tf.io.directories import made_directory
from albert_tf.io.json_files import write_json
from albert_tf.tasks.base import Task
from albert_tf.tasks.kinds.base import Prediction
from albert_tf.tasks.kinds.multi_label import MultiLabelClassification
from albert_tf.tasks.kinds.question_answering import AnswerableSpans
from albert_tf.tasks.prediction_files import add_to_submission, prediction_files
from bin import command_line, own_rows, tasks
from bin.show_results import lacks_sentence_objective

if TYPE_CHECKING:
    from albert_tf.jobs.task_evaluation import TaskEvaluation

FLAGS = flags.FLAGS

_PRETRAINING = "pretraining"


def define_flags() -> None:
    own_rows.define_flag()
    tasks.define_flags(
        "Task to evaluate; pretraining: masked LM and the sentence objective "
        "of held-out shards. Default: that of the model (task.json), with the "
        "columns of its training.",
        [_PRETRAINING],
        "Directory of the task's files, or of the shards.",
    )
    tasks.define_feature_flags()
    flags.DEFINE_list(
        "model_dir",
        None,
        f"{command_line.MODEL_HELP} For a task also several, comma-separated: "
        "an ensemble, whose scores are averaged.",
    )
    flags.DEFINE_string(
        "split",
        None,
        "Examples to evaluate. Default: those that the model's fine-tuning "
        "evaluated (dev; MNLI's mismatched ones too; of a fold what it held "
        "out; shards: eval).",
    )
    flags.DEFINE_string(
        "output_dir", None, "Directory for metrics.json and prediction files."
    )
    flags.DEFINE_string(
        "submission",
        None,
        "GLUE: a zip file to add the predictions to, beside those of other "
        "tasks.",
    )
    flags.DEFINE_integer(
        "errors", 0, "Number of the worst errors to print.", lower_bound=0
    )
    flags.DEFINE_float(
        "null_threshold",
        None,
        "Questions that may have no answer: above this score there is none. "
        "Default: that in the model's task.json.",
    )
    flags.DEFINE_integer("batch_size", 32, "Texts per batch.", lower_bound=1)
    flags.DEFINE_integer("seed", 12345, "Seed of the masks.", lower_bound=0)
    command_line.define_settings(MaskingConfig())
    command_line.written_as("submission", [".zip"])
    command_line.required("data_dir", "model_dir")


# Flags that only one sort of evaluation reads.
_OF_TASKS = (
    *("columns", *tasks.OF_OWN_FILES),
    *("errors", "null_threshold", "submission"),
)
_OF_PRETRAINING = ("seed", *setting_fields(MaskingConfig()))


def main() -> None:
    with (
        # A directory that cannot be written is refused before work is done.
        made_directory(FLAGS.output_dir)
        if FLAGS.output_dir
        else contextlib.nullcontext()
    ):
        _evaluate()


def _evaluate() -> None:
    if FLAGS.task == _PRETRAINING:
        _refuse(_OF_TASKS, "is for tasks, not for pretraining")
        metrics = _evaluate_pretraining()
    else:
        _refuse(_OF_PRETRAINING, f"is for --task={_PRETRAINING}")
        task = tasks.chosen(FLAGS.model_dir[0])
        splits = {"": FLAGS.split} if FLAGS.split else task.evaluated
        _check_flags(task, set(splits.values()))
        command_line.load_tensorflow()
        if not FLAGS.split:
            task = tasks.divided_as_in_training(task, FLAGS.model_dir)
            splits = task.evaluated
        metrics = {}
        for ending, split in splits.items():
            metrics |= _evaluate_task(task, split, ending)
    # Without labels there are no metrics, and those of dev stay.
    if FLAGS.output_dir and metrics:
        from albert_tf.rundir.run_results import json_metrics

        path = os.path.join(FLAGS.output_dir, "metrics.json")
        write_json(path, json_metrics(metrics))


def _refuse(names: Iterable[str], why: str) -> None:
    for name in names:
        require(not FLAGS[name].present, f"--{name} {why}.")


def _check_flags(task: Task, splits: set[str]) -> None:
    if not isinstance(task.kind, AnswerableSpans):
        _refuse(["null_threshold"], "is for questions that may have no answer")
    if not FLAGS.submission:
        return
    flag = f"--submission={FLAGS.submission}"
    require(
        bool(task.submissions),
        f"{flag} is for GLUE; {task.name} has files of its own in "
        "--output_dir.",
    )
    require(
        splits <= set(task.submissions),
        f"{flag} is for what GLUE scores: give "
        f"--split={' or '.join(task.submissions)}.",
    )
    folder = os.path.dirname(FLAGS.submission)
    require(
        not folder or files.is_remote(folder) or files.isdir(folder),
        f"{flag}: there is no directory {folder}.",
    )


def _evaluate_pretraining() -> dict[str, float]:
    """Prints and returns the metrics on held-out shards."""
    command_line.load_tensorflow()
    from albert_tf.jobs.evaluate import evaluate_pretrained

    require(
        len(FLAGS.model_dir) == 1,
        "--task=pretraining evaluates one --model_dir.",
    )
    metrics = evaluate_pretrained(
        FLAGS.model_dir[0],
        FLAGS.data_dir,
        split=FLAGS.split or "eval",
        batch_size=FLAGS.batch_size,
        seed=FLAGS.seed,
        masking=command_line.with_flags(MaskingConfig()),
    )
    rows = [[name, shown_metric(value)] for name, value in metrics.items()]
    if lacks_sentence_objective(metrics):
        rows.append(["sentence objective", "none"])
    print(command_line.format_table(rows, ["metric", "value"]))
    return metrics


def _evaluate_task(task: Task, split: str, ending: str) -> dict[str, float]:
    """Prints a split's evaluation, writes its files, returns its metrics."""
    from albert_tf.cluster.environment import usable_cpus
    from albert_tf.jobs.task_evaluation import evaluate_task

    with command_line.progress("examples") as progress:
        result = evaluate_task(
            FLAGS.model_dir,
            task,
            FLAGS.data_dir,
            split=split,
            batch_size=FLAGS.batch_size,
            workers=usable_cpus(),
            cache_dir=FLAGS.feature_cache,
            null_threshold=FLAGS.null_threshold,
            progress=progress,
        )
    predictions = result.predictions()
    print(f"{task.name}, {split}: {len(result.scored.examples)} examples.")
    if result.metrics:
        _print_metrics(result)
        if FLAGS.errors:
            _print_errors(predictions, FLAGS.errors)
    else:
        print("The examples have no labels: there are no metrics or errors.")
    contents = prediction_files(task, split, result.scored, predictions)
    if FLAGS.output_dir:
        for name, content in contents.items():
            # The names of GLUE's tables have the split already.
            if not name.endswith(".tsv"):
                name = f"{ending}.".join(name.rsplit(".", 1))
            path = os.path.join(FLAGS.output_dir, name)
            files.write(path, content)
            print(f"Written: {path}")
    if FLAGS.submission:
        (name,) = (name for name in contents if name.endswith(".tsv"))
        names = add_to_submission(FLAGS.submission, name, contents[name])
        print(f"{FLAGS.submission} holds {', '.join(names)}.")
    metrics = dict(result.metrics)
    if metrics and isinstance(task.kind, AnswerableSpans):
        # The threshold of predictions.json, for bin.score.
        metrics["null_threshold"] = result.scored.config.null_threshold
    return {f"{n}{ending}": value for n, value in metrics.items()}


def _print_metrics(result: "TaskEvaluation") -> None:
    columns = {"value": result.metrics}
    if len(result.members) > 1:
        members = zip(FLAGS.model_dir, result.members, strict=True)
        columns = {**dict(members), "ensemble": result.metrics}
    print(command_line.metrics_table(columns))
    if table := result.table():
        print(f"\n{command_line.format_table(table.rows, table.header)}")
    if "best_f1" in result.metrics and FLAGS.null_threshold is None:
        threshold = result.scored.config.null_threshold
        print(
            f"null_threshold={threshold:.4g} was chosen on the dev examples of "
            "fine-tuning. On those examples it has seen the answers, as "
            "best_f1 always has."
        )
    if isinstance(result.task.kind, MultiLabelClassification):
        print(
            f"label_thresholds={result.scored.config.label_thresholds}: where "
            "fine-tuning chose them, on its dev examples, F1 is too high on "
            "these."
        )


def _print_errors(predictions: list[Prediction], number: int) -> None:
    wrong = [p for p in predictions if p.error > 0]
    wrong.sort(key=lambda prediction: -prediction.error)
    print(f"\nThe worst of {len(wrong)} errors:")
    for prediction in wrong[:number]:
        print(f"{prediction.location} (off by {prediction.error:.4g})")
        for name, value in prediction.fields.items():
            print(f"    {name}: {value}")


if __name__ == "__main__":
    command_line.run(define_flags, main)
