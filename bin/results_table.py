"""An evaluation as a table: each measure beside what guessing reaches."""

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


def results_table(evaluation: dict[str, float]) -> str:
    """Returns the rows of the measures that `evaluation` holds."""
    rows = [
        [title, f"{evaluation[name]:.1%}", f"{evaluation[base]:.1%}", guess]
        for name, title, base, guess in _ROWS
        if name in evaluation
    ]
    return format_table(rows, ["held-out", "model", "guessing", "the guess"])
