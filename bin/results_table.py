"""Evaluations as a table: each measure beside what guessing reaches."""

from albert_tf.records.sentence_objectives import pretraining_targets
from albert_tf.records.targets import MASKED_LM
from bin.command_line import format_table


def results_table(evaluations: dict[str, dict[str, float]]) -> str:
    """Returns a table of what each run's evaluation holds, by its name."""
    rows = [
        [*row, run]
        for run, evaluation in evaluations.items()
        for row in _rows(evaluation)
    ]
    return format_table(
        rows, ["on held-out text", "model", "guessing", "the guess", "run"]
    )


def _rows(evaluation: dict[str, float]) -> list[list[str]]:
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
    return rows or _task_rows(evaluation)


# What a measure's guess is called, and what is guessed.
_GUESSES = {
    "majority_class_": "majority class",
    "mean_guess_": "the mean",
}


def _task_rows(evaluation: dict[str, float]) -> list[list[str]]:
    """Returns the measures of a task, each beside its guess."""
    guesses = {
        f"{prefix}{name}": (name, what)
        for prefix, what in _GUESSES.items()
        for name in evaluation
    }
    beside = {
        guesses[name][0]: (_shown(name, value), guesses[name][1])
        for name, value in evaluation.items()
        if name in guesses
    }
    return [
        [name, _shown(name, value), *beside.get(name, ("-", _remark(name)))]
        for name, value in evaluation.items()
        if name not in guesses and not _is_beside_the_point(name)
    ]


def _is_beside_the_point(name: str) -> bool:
    # MNLI has the loss of its mismatched examples too.
    return name in ("step", "split", "loss") or name.startswith("loss_")


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "not defined"
    return f"{value:.1%}" if "accuracy" in name else f"{value:.4f}"


def _remark(name: str) -> str:
    # best_f1 of SQuAD 2.0.
    return "has seen the answers" if name.startswith("best_") else "-"


def lacks_sentence_objective(evaluation: dict[str, float]) -> bool:
    """Returns whether this is of pretraining on single segments."""
    return [
        target
        for target in pretraining_targets()
        if target.accuracy in evaluation
    ] == [MASKED_LM]
