"""Evaluations as a table: each metric beside its trivial baseline."""

from albert_tf.records.sentence_objectives import pretraining_targets
from albert_tf.records.targets import MASKED_LM
from bin.command_line import format_table

# Prefix of a baseline's name -> its prediction.
_BASELINES = {
    "majority_class_": "majority class",
    "mean_guess_": "the mean",
}


def results_table(evaluations: dict[str, dict[str, float]]) -> str:
    """Returns a table of evaluations by the name of their run."""
    rows = [
        [*row, run]
        for run, evaluation in evaluations.items()
        for row in _pretraining_rows(evaluation) or _task_rows(evaluation)
    ]
    return format_table(
        rows,
        ["on held-out text", "model", "baseline", "baseline predicts", "run"],
    )


def lacks_sentence_objective(evaluation: dict[str, float]) -> bool:
    """Returns whether this is of pretraining on single segments."""
    return [
        target
        for target in pretraining_targets()
        if target.accuracy in evaluation
    ] == [MASKED_LM]


def _pretraining_rows(evaluation: dict[str, float]) -> list[list[str]]:
    rows = [
        [
            target.title,
            f"{evaluation[target.accuracy]:.1%}",
            f"{evaluation[target.baseline]:.1%}",
            target.baseline_label,
        ]
        for target in pretraining_targets()
        if target.accuracy in evaluation
    ]
    if lacks_sentence_objective(evaluation):
        rows.append(["sentence objective", "none", "-", "-"])
    return rows


def _task_rows(evaluation: dict[str, float]) -> list[list[str]]:
    baselines = {
        name: (f"{prefix}{name}", prediction)
        for name in evaluation
        for prefix, prediction in _BASELINES.items()
        if f"{prefix}{name}" in evaluation
    }
    # MNLI has the loss of its mismatched examples too.
    hidden = {
        "step",
        "split",
        *(baseline for baseline, _ in baselines.values()),
    }
    rows = []
    for name, value in evaluation.items():
        if name in hidden or name.split("_")[0] == "loss":
            continue
        beside = ["-", "-"]
        if name in baselines:
            baseline, prediction = baselines[name]
            beside = [_shown(baseline, evaluation[baseline]), prediction]
        elif name.startswith("best_"):
            # best_f1 of SQuAD 2.0.
            beside = ["-", "has seen the answers"]
        rows.append([name, _shown(name, value), *beside])
    return rows


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "not defined"
    return f"{value:.1%}" if "accuracy" in name else f"{value:.4f}"
