"""Metrics and predictions of a model on held-out examples.

python -m bin.evaluate --task=classification --data_dir=mytask \\
    --model_dir=runs/mytask/model --output_dir=runs/mytask/evaluation
python -m bin.evaluate --task=pretraining --data_dir=shards \\
    --model_dir=runs/tiny/model
"""

import json
import os

from absl import flags

from albert_tf import files
from albert_tf.config import MaskingConfig, override, write_json
from albert_tf.tasks.custom import TASKS
from bin import command_line
from bin.results_table import lacks_sentence_objective

FLAGS = flags.FLAGS

_PRETRAINING = "pretraining"


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_enum(
        "task",
        None,
        [*TASKS, _PRETRAINING],
        "What to evaluate; pretraining: masked LM and the sentence objective "
        "of held-out shards.",
    )
    flags.DEFINE_string("data_dir", None, "The task's files, or the shards.")
    flags.DEFINE_string("model_dir", None, "The model or run directory.")
    flags.DEFINE_string(
        "split", None, "Which examples. Default: dev (shards: eval)."
    )
    flags.DEFINE_string(
        "output_dir", None, "Where metrics.json and predictions go, if set."
    )
    flags.DEFINE_integer("batch_size", 32, "Texts at a time.", lower_bound=1)
    flags.DEFINE_integer("seed", 12345, "Seed of the masks.", lower_bound=0)
    command_line.define_settings(MaskingConfig())
    command_line.required("task", "data_dir", "model_dir")


def main() -> None:
    """Evaluates, prints the metrics and writes the files."""
    command_line.load_tensorflow()
    from albert_tf.training.evaluate import (
        evaluate_predictions,
        evaluate_pretrained,
    )

    if FLAGS.task == _PRETRAINING:
        metrics, predictions = (
            evaluate_pretrained(
                FLAGS.model_dir,
                FLAGS.data_dir,
                split=FLAGS.split or "eval",
                batch_size=FLAGS.batch_size,
                seed=FLAGS.seed,
                masking=override(
                    MaskingConfig(),
                    command_line.given_settings(MaskingConfig()),
                ),
            ),
            None,
        )
    else:
        metrics, predictions = evaluate_predictions(
            FLAGS.model_dir,
            TASKS[FLAGS.task],
            FLAGS.data_dir,
            split=FLAGS.split or "dev",
            batch_size=FLAGS.batch_size,
        )
    rows = [[name, f"{value:.4f}"] for name, value in metrics.items()]
    if lacks_sentence_objective(metrics):
        rows.append(["sentence objective", "none"])
    print(command_line.format_table(rows, ["measure", "value"]))
    if not FLAGS.output_dir:
        return
    files.makedirs(FLAGS.output_dir)
    if predictions is not None:
        path = os.path.join(FLAGS.output_dir, "predictions.jsonl")
        with files.replacing(path) as file:
            for row in predictions:
                line = json.dumps(row, ensure_ascii=False) + "\n"
                file.write(line.encode())
    write_json(os.path.join(FLAGS.output_dir, "metrics.json"), metrics)


if __name__ == "__main__":
    command_line.run(define_flags, main)
