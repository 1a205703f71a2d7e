"""Scores of a prediction file, as the benchmark's own script gives them.

python -m bin.score --task=SQuAD2.0 --gold=dev-v2.0.json \\
    --predictions=predictions.json --null_odds=null_odds.json
python -m bin.score --task=MRPC --gold=MRPC/dev.tsv --predictions=MRPC.tsv
"""

import json
import sys

from absl import flags

from albert_tf.io.json_files import write_json
from albert_tf.rundir.run_results import json_metrics
from albert_tf.tasks.scoring import SCORED_TASKS, score
from bin import command_line

FLAGS = flags.FLAGS


def define_flags() -> None:
    flags.DEFINE_enum(
        "task", None, SCORED_TASKS, "Task whose metrics to compute."
    )
    flags.DEFINE_string(
        "gold",
        None,
        "The benchmark's file with labels or answers; RACE's folder of a "
        "split.",
    )
    flags.DEFINE_string(
        "predictions",
        None,
        "Predictions to score: for GLUE a table of index and prediction, as "
        "submitted; for SQuAD a JSON object of answers by id, for RACE one of "
        "letters.",
    )
    flags.DEFINE_string(
        "null_odds",
        None,
        "SQuAD2.0: a JSON object of the score of no answer, by id.",
    )
    flags.DEFINE_float(
        "null_threshold",
        None,
        "SQuAD2.0, with --null_odds: above this score there is no answer. "
        "Default: 1, as in the official script.",
    )
    flags.DEFINE_string("output", None, "File for the metrics.")
    command_line.written_as("output", [".json"])
    command_line.required("task", "gold", "predictions")


def main() -> None:
    result = score(
        FLAGS.task,
        FLAGS.gold,
        FLAGS.predictions,
        null_odds=FLAGS.null_odds or "",
        threshold=FLAGS.null_threshold,
    )
    for warning in result.warnings:
        print(warning, file=sys.stderr, flush=True)
    metrics = json_metrics(result.metrics)
    print(json.dumps(metrics, indent=2))
    if FLAGS.output:
        write_json(FLAGS.output, metrics)


if __name__ == "__main__":
    command_line.run(define_flags, main)
