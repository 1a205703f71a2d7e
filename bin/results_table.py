"""Evaluations as a table: each measure beside what guessing reaches."""

from bin.command_line import format_table

# (measure, its name for people, the measure of guessing, how one guesses).
_ROWS = (
    (
        "masked_lm_accuracy",
        "masked-LM accuracy",
        "most_frequent_token_accuracy",
        "most frequent token",
    ),
    (
        "sentence_order_accuracy",
        "sentence-order accuracy",
        "majority_order_accuracy",
        "more frequent order",
    ),
    (
        "accuracy",
        "classifier accuracy",
        "majority_class_accuracy",
        "majority class",
    ),
)


def results_table(evaluations: dict[str, dict[str, float]]) -> str:
    """Returns a table of what each run's evaluation holds, by its name."""
    rows = [
        [
            title,
            f"{evaluation[measure]:.1%}",
            f"{evaluation[baseline]:.1%}",
            guess,
            run,
        ]
        for run, evaluation in evaluations.items()
        for measure, title, baseline, guess in _ROWS
        if measure in evaluation
    ]
    return format_table(
        rows, ["on held-out text", "model", "guessing", "the guess", "run"]
    )
