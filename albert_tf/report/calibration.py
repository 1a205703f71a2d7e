"""The calibration of a model's probabilities in a report."""

import dataclasses

from albert_tf.report.figures import draw_reliability
from albert_tf.report.page import Figure, Paragraph, Section, Table
from albert_tf.tasks.kinds.base import Kind, ScoredExamples
from albert_tf.tasks.kinds.classification import ClassKind
from albert_tf.tasks.metrics.calibration import (
    at_temperature,
    cross_fitted,
    negative_log_likelihood,
    reliability,
)


def calibrated(scored: ScoredExamples, temperature: float) -> ScoredExamples:
    """Returns the scores that a model of a temperature gives."""
    if temperature == 1.0:
        return scored
    scores = [at_temperature(row, temperature) for row in scored.scores]
    return dataclasses.replace(scored, scores=scores)


def calibration_section(
    kind: Kind, scored: ScoredExamples, temperature: float
) -> list[Section]:
    """Returns the calibration of scores without a temperature, and with.

    Empty for kinds whose scores are no probabilities of classes.
    """
    if not isinstance(kind, ClassKind):
        return []
    gold, _ = kind.gold_and_predicted(scored)
    plain = kind.probabilities(scored)
    measured = {"without temperature": plain}
    if len(gold) > 1:
        measured["with temperature"] = cross_fitted(plain, gold)
    found = {name: reliability(p, gold) for name, p in measured.items()}
    table = Table(
        ["", "calibration error", "negative log-likelihood"],
        [
            [
                name,
                f"{found[name].error:.4f}",
                f"{negative_log_likelihood(values, gold):.4f}",
            ]
            for name, values in measured.items()
        ],
        "The expected calibration error is the mean distance of probability "
        "and share of right answers, in 15 bins.",
    )
    caption = "Probabilities of answers, and how often these are right."
    figure = Figure(draw_reliability(found), caption, "calibration.png")
    return [Section("Calibration", [_explained(temperature), table, figure])]


def _explained(temperature: float) -> Paragraph:
    if temperature == 1.0:
        return Paragraph(
            "The model has no temperature. Below, each fifth of the examples "
            "has, for comparison, the one that fits the others."
        )
    direction = "bolder" if temperature < 1 else "more careful"
    return Paragraph(
        f"Temperature {temperature:g}, fitted on dev and kept in the model's "
        f"task.json, makes the probabilities {direction}; the answers stay "
        "the same. Here each fifth of the examples has the temperature that "
        "fits the others."
    )
