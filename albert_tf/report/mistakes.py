"""The worst mistakes of a model in a report."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import cut
from albert_tf.report.page import (
    Paragraph,
    Section,
    Table,
    without_empty_columns,
)
from albert_tf.tasks.kinds.base import Prediction

_NUM_MISTAKES = 20
_MAX_CHARACTERS = 300


def mistakes_section(predictions: Sequence[Prediction]) -> Section:
    """Returns the wrong predictions with the highest loss, as a table."""
    wrong = _worst(predictions)
    if not wrong:
        return Section("Worst mistakes", [Paragraph("There are none.")])
    rows = [_row(predictions[number]) for number in wrong[:_NUM_MISTAKES]]
    columns = ["where", "text", "label", "answer", "p(answer)"]
    caption = f"The highest losses of {len(predictions)} dev examples"
    # Predicted numbers are all wrong, so that their number says nothing.
    if len(wrong) < len(predictions):
        caption = (
            f"The wrong answers with the highest loss, of {len(wrong)} in "
            f"{len(predictions)} dev examples"
        )
    table = Table([*columns, "p(label)"], rows, f"{caption}.")
    return Section("Worst mistakes", [without_empty_columns(table)])


def worst_and_right(predictions: Sequence[Prediction], count: int) -> list[int]:
    """Returns the numbers of mistakes and of right answers, in turn.

    The worst mistakes, and right answers from all over the examples; of
    numbers, which are never right, those that are nearest.
    """
    wrong = _worst(predictions)
    right = [n for n, each in enumerate(predictions) if not each.error]
    if not right:
        right = wrong[::-1][: count // 2]
    step = max(1, len(right) // (count // 2))
    pairs = zip(wrong, right[::step], strict=False)
    return [number for pair in pairs for number in pair][:count]


def _worst(predictions: Sequence[Prediction]) -> list[int]:
    wrong = [n for n, each in enumerate(predictions) if each.error > 0]
    return sorted(wrong, key=lambda n: -_loss(predictions[n]))


def _loss(prediction: Prediction) -> float:
    """Returns the loss of classes, or what the kind calls the error."""
    probability = _probabilities(prediction.fields)[1]
    if probability is None:
        return prediction.error
    return -math.log(max(probability, 1e-30))


def _probabilities(
    fields: Mapping[str, Any],
) -> tuple[float | None, float | None]:
    """Returns those of the answer and of the label, where there are any."""
    found = fields.get("probabilities")
    # Several labels have no probability together.
    if isinstance(found, Mapping) and isinstance(fields["prediction"], str):
        return found.get(fields["prediction"]), found.get(fields["label"])
    return fields.get("probability"), None


def _row(prediction: Prediction) -> list[str]:
    fields = prediction.fields
    label = fields.get("label", fields.get("answers"))
    answer = fields["prediction"]
    if "words" in fields and isinstance(label, list):
        # Tags: the words that are wrong.
        triples = zip(fields["words"], label, answer, strict=True)
        wrong = [each for each in triples if each[1] != each[2]]
        label = ", ".join(f"{word}: {gold}" for word, gold, _ in wrong)
        answer = ", ".join(f"{word}: {given}" for word, _, given in wrong)
    elif isinstance(label, list):
        label = " | ".join(dict.fromkeys(label))
    if isinstance(answer, list):
        answer = " | ".join(answer)
    if isinstance(answer, float):
        answer = f"{answer:.5g}"
    shown = ["" if p is None else f"{p:.1%}" for p in _probabilities(fields)]
    where = os.path.basename(prediction.location)
    sides = (
        cut(str(side), _MAX_CHARACTERS) or "none" for side in (label, answer)
    )
    return [where, _text(fields), *sides, *shown]


def _text(fields: Mapping[str, Any]) -> str:
    if "words" in fields:
        return cut(" ".join(fields["words"]), _MAX_CHARACTERS)
    texts = fields.get("texts")
    if texts is None:
        names = ("text", "question", "context")
        texts = [fields[name] for name in names if name in fields]
        texts += fields.get("choices", [])
    return " ‖ ".join(cut(str(text), _MAX_CHARACTERS) for text in texts)
