"""Metrics and predictions of a model, or several, on held-out examples.

python -m bin.evaluate --task=MRPC --data_dir=glue/MRPC \\
    --model_dir=runs/mrpc/model --output_dir=runs/mrpc/evaluation
python -m bin.evaluate --task=MRPC --data_dir=glue/MRPC --split=test \\
    --model_dir=runs/a,runs/b,runs/c --submission=glue.zip
python -m bin.evaluate --task=pretraining --data_dir=shards \\
    --model_dir=runs/tiny/model
"""

import os
from collections.abc import Iterable
from typing import Any

from absl import flags

from albert_tf.config import MaskingConfig, UserError, override, setting_fields
from albert_tf.io import files
from albert_tf.io.json_files import write_json
from albert_tf.tasks.base import Task
from albert_tf.tasks.kinds.question_answering import AnswerableSpans
from albert_tf.tasks.prediction_files import add_to_submission, prediction_files
from bin import command_line, tasks
from bin.results_table import lacks_sentence_objective

FLAGS = flags.FLAGS

_PRETRAINING = "pretraining"


def define_flags() -> None:
    """Defines the program's flags."""
    tasks.define_flags(
        "What to evaluate; pretraining: masked LM and the sentence objective "
        "of held-out shards.",
        [_PRETRAINING],
    )
    tasks.define_feature_flags()
    flags.DEFINE_string("data_dir", None, "The task's files, or the shards.")
    flags.DEFINE_list(
        "model_dir",
        None,
        "The model or run directory; of a task also several, separated by "
        "commas, whose scores are averaged.",
    )
    flags.DEFINE_string(
        "split",
        None,
        "Which examples. Default: those that fine-tuning evaluates (dev; "
        "MNLI's mismatched ones too; shards: eval).",
    )
    flags.DEFINE_string(
        "output_dir",
        None,
        "Where metrics.json and files of predictions go, if set.",
    )
    flags.DEFINE_string(
        "submission",
        None,
        "GLUE: a zip file that the predictions are put into, beside those of "
        "other tasks.",
    )
    flags.DEFINE_integer(
        "errors", 0, "Show so many of the worst mistakes.", lower_bound=0
    )
    flags.DEFINE_float(
        "null_threshold",
        None,
        "Questions that may have no answer: a score of that above this means "
        "none. Default: what the model keeps.",
    )
    flags.DEFINE_integer("batch_size", 32, "Texts at a time.", lower_bound=1)
    flags.DEFINE_integer("seed", 12345, "Seed of the masks.", lower_bound=0)
    command_line.define_settings(MaskingConfig())
    command_line.required("task", "data_dir", "model_dir")


# Flags that only one sort of evaluation reads.
_OF_TASKS = ("columns", "errors", "null_threshold", "submission")
_OF_PRETRAINING = ("seed", *setting_fields(MaskingConfig()))


def main() -> None:
    """Evaluates, prints the metrics and writes the files."""
    if FLAGS.task == _PRETRAINING:
        _refuse(_OF_TASKS, "is for tasks, not for pretraining")
        _evaluate_pretraining()
        return
    _refuse(_OF_PRETRAINING, f"is for --task={_PRETRAINING}")
    task = tasks.chosen()
    if not isinstance(task.kind, AnswerableSpans):
        _refuse(["null_threshold"], "is for questions that may have no answer")
    splits = dict(task.evaluated)
    if FLAGS.split:
        splits = {"": FLAGS.split}
    if FLAGS.submission and not task.submissions:
        raise UserError(
            f"--submission={FLAGS.submission} is for GLUE; {task.name} has "
            "files of its own in --output_dir."
        )
    if FLAGS.submission and not set(splits.values()) <= set(task.submissions):
        raise UserError(
            f"--submission={FLAGS.submission} is for what GLUE scores: give "
            f"--split={' or '.join(task.submissions)}."
        )
    folder = os.path.dirname(FLAGS.submission or "")
    if folder and not files.is_remote(folder) and not files.isdir(folder):
        raise UserError(
            f"--submission={FLAGS.submission}: there is no directory {folder}."
        )
    command_line.load_tensorflow()
    found: dict[str, float] = {}
    for ending, split in splits.items():
        found |= _evaluate_task(task, split, ending)
    # A test file measures nothing, and the metrics of dev stay.
    if FLAGS.output_dir and found:
        _write_metrics(found)


def _refuse(names: Iterable[str], why: str) -> None:
    """Raises UserError for a flag that was given and would do nothing."""
    for name in names:
        if FLAGS[name].present:
            raise UserError(f"--{name} {why}.")


def _evaluate_pretraining() -> None:
    command_line.load_tensorflow()
    from albert_tf.jobs.evaluate import evaluate_pretrained

    if len(FLAGS.model_dir) > 1:
        raise UserError("--task=pretraining evaluates one --model_dir.")
    measures = evaluate_pretrained(
        FLAGS.model_dir[0],
        FLAGS.data_dir,
        split=FLAGS.split or "eval",
        batch_size=FLAGS.batch_size,
        seed=FLAGS.seed,
        masking=override(
            MaskingConfig(), command_line.given_settings(MaskingConfig())
        ),
    )
    rows = [[name, f"{value:.4f}"] for name, value in measures.items()]
    if lacks_sentence_objective(measures):
        rows.append(["sentence objective", "none"])
    print(command_line.format_table(rows, ["measure", "value"]))
    if FLAGS.output_dir:
        _write_metrics(measures)


def _evaluate_task(task: Task, split: str, ending: str) -> dict[str, float]:
    """Prints a split's evaluation, writes its files, returns its measures."""
    from albert_tf.jobs.task_evaluation import evaluate_task

    with command_line.progress("examples") as progress:
        result = evaluate_task(
            FLAGS.model_dir,
            task,
            FLAGS.data_dir,
            split=split,
            batch_size=FLAGS.batch_size,
            workers=tasks.workers(),
            cache_dir=FLAGS.feature_cache,
            null_threshold=FLAGS.null_threshold,
            progress=progress,
        )
    predictions = result.predictions()
    print(f"{task.name}, {split}: {len(result.answers.examples)} examples.")
    if result.metrics:
        _print_measures(result)
        if "best_f1" in result.metrics and FLAGS.null_threshold is None:
            threshold = result.answers.config.null_threshold
            print(
                f"null_threshold={threshold:.4g} was chosen "
                "on the dev examples of fine-tuning: of these very examples it "
                "has seen the answers, as best_f1 always has."
            )
    else:
        print(
            "The file does not tell the answers; nothing is measured"
            + (", and no mistake is known." if FLAGS.errors else ".")
        )
    if FLAGS.errors and result.metrics:
        _print_errors(predictions)
    written = prediction_files(task, split, result.answers, predictions)
    if FLAGS.output_dir:
        files.makedirs(FLAGS.output_dir)
        for name, content in written.items():
            # GLUE's table says the split already.
            if not name.endswith(".tsv"):
                name = f"{ending}.".join(name.rsplit(".", 1))
            path = os.path.join(FLAGS.output_dir, name)
            files.write(path, content)
            print(f"Written: {path}")
    if FLAGS.submission:
        (name,) = (name for name in written if name.endswith(".tsv"))
        names = add_to_submission(FLAGS.submission, name, written[name])
        print(f"{FLAGS.submission} holds {', '.join(names)}.")
    return {f"{n}{ending}": value for n, value in result.metrics.items()}


def _print_measures(result: Any) -> None:
    columns = [result.metrics]
    header = ["measure", "value"]
    if len(result.members) > 1:
        columns = [*result.members, result.metrics]
        header = ["measure", *FLAGS.model_dir, "together"]
    rows = [
        [name, *(f"{column[name]:.4f}" for column in columns)]
        for name in result.metrics
    ]
    print(command_line.format_table(rows, header))
    table = result.table()
    if table:
        print()
        print(command_line.format_table(table.rows, table.header))


def _print_errors(predictions: list) -> None:
    wrong = sorted(
        (p for p in predictions if p.error > 0), key=lambda p: -p.error
    )
    print(f"\nThe worst of {len(wrong)} mistakes:")
    for prediction in wrong[: FLAGS.errors]:
        print(f"{prediction.location} (off by {prediction.error:.4g})")
        for name, value in prediction.fields.items():
            print(f"    {name}: {value}")


def _write_metrics(measures: dict[str, float]) -> None:
    from albert_tf.rundir.run_results import json_metrics

    files.makedirs(FLAGS.output_dir)
    path = os.path.join(FLAGS.output_dir, "metrics.json")
    write_json(path, json_metrics(measures))


if __name__ == "__main__":
    command_line.run(define_flags, main)
