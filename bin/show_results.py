"""The evaluation of each run's model, in one table beside trivial baselines.

python -m bin.show_results --run_dirs=runs/tiny,runs/mytask
python -m bin.show_results --run_dirs=runs
"""

import math

from absl import flags

from albert_tf.config import UserError, shown_metric
from albert_tf.records.loss_terms import MASKED_LM, LossTerm
from albert_tf.records.sentence_objectives import pretraining_loss_terms
from albert_tf.rundir.run_results import (
    NO_METRICS,
    read_comparison,
    result,
    run_directories,
    title,
)
from albert_tf.tasks.kinds.base import guess_of
from bin import command_line

FLAGS = flags.FLAGS

# Prefix of a baseline's name -> its prediction; "": `guess_of` has it.
_BASELINES = {
    "majority_class_": "",
    "mean_guess_": "the mean",
    "tfidf_": "TF-IDF",
    "nearby_words_": "linear model",
}


def results_table(evaluations: dict[str, dict[str, float]]) -> str:
    """Returns a table of evaluations by the name of their run."""
    rows = [
        [*row, run]
        for run, evaluation in evaluations.items()
        for row in _pretraining_rows(evaluation) or _task_rows(evaluation)
    ]
    return command_line.format_table(
        rows,
        ["on held-out text", "model", "baseline", "baseline predicts", "run"],
    )


def _targets(evaluation: dict[str, float]) -> list[LossTerm]:
    return [t for t in pretraining_loss_terms() if t.accuracy in evaluation]


def lacks_sentence_objective(evaluation: dict[str, float]) -> bool:
    """Returns whether an evaluation is of pretraining on single segments."""
    return _targets(evaluation) == [MASKED_LM]


def _pretraining_rows(evaluation: dict[str, float]) -> list[list[str]]:
    rows = [
        [
            target.title,
            _shown(evaluation, target.accuracy),
            _shown(evaluation, target.baseline),
            target.baseline_label,
        ]
        for target in _targets(evaluation)
    ]
    if lacks_sentence_objective(evaluation):
        rows.append(["sentence objective", "none", "-", "-"])
    return rows


def _task_rows(evaluation: dict[str, float]) -> list[list[str]]:
    rows = []
    guess = guess_of(evaluation).removeprefix("the ")
    for name in evaluation:
        # MNLI has the loss of its mismatched examples too.
        if name in NO_METRICS or name.split("_")[0] == "loss":
            continue
        if name.startswith(tuple(_BASELINES)):
            continue
        # best_f1 of SQuAD 2.0.
        seen = "has seen the answers" if name.startswith("best_") else "-"
        beside = [
            [_shown(evaluation, baseline), prediction or guess]
            for prefix, prediction in _BASELINES.items()
            if (baseline := f"{prefix}{name}") in evaluation
        ]
        rows += [
            [name, _shown(evaluation, name), *columns]
            for columns in beside or [["-", seen]]
        ]
    return rows


def _shown(evaluation: dict[str, float], name: str) -> str:
    value = evaluation[name]
    if value is None or math.isnan(value):
        return "not defined"
    return f"{value:.1%}" if "accuracy" in name else shown_metric(value)


def define_flags() -> None:
    flags.DEFINE_list(
        "run_dirs",
        None,
        "Run directories, or directories of some, such as that of --num_runs; "
        "comma-separated.",
    )
    command_line.required("run_dirs")


def main() -> None:
    found: dict[str, dict[str, float]] = {}
    without: list[UserError] = []
    for path in FLAGS.run_dirs:
        for run_dir in run_directories(path):
            try:
                found[title(run_dir)] = {
                    **result(run_dir),
                    **read_comparison(run_dir)[0],
                }
            except UserError as error:
                # Other runs of the directory may have one.
                if run_dir == path:
                    raise
                without.append(error)
    if not found:
        raise without[0]
    print(results_table(found))
    for error in without:
        print(error)


if __name__ == "__main__":
    command_line.run(define_flags, main)
