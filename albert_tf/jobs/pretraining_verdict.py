"""Whether a pretraining run has learned its objectives, in words."""

from collections.abc import Mapping

from albert_tf.config import PretrainConfig
from albert_tf.records.sentence_objectives import pretraining_loss_terms
from albert_tf.training.job import MARGIN_ABOVE_BASELINE

# By the share of the way from the baseline to no errors at all.
_HARDLY, _IN_PART = 0.1, 0.5


def pretraining_verdict(
    evaluation: Mapping[str, float], config: PretrainConfig
) -> list[str]:
    """Returns a sentence for each accuracy of a run's last evaluation.

    After them comes what to try, where one is hardly above its baseline.
    """
    degrees = {
        term: _degree(evaluation[term.accuracy], evaluation[term.baseline])
        for term in pretraining_loss_terms()
        if term.accuracy in evaluation
    }
    lines = [
        f"{term.title} {evaluation[term.accuracy]:.1%}, against "
        f"{evaluation[term.baseline]:.1%} for always predicting the "
        f"{term.baseline_label}: {degree}."
        for term, degree in degrees.items()
    ]
    if {"not learned", "hardly learned"} & set(degrees.values()):
        steps = config.training.num_train_steps
        to_try = [f"more steps than {steps}", "a lower --learning_rate"]
        if config.model.position_init != "sinusoidal":
            to_try.append("--position_init=sinusoidal")
        lines.append(f"To try: {', '.join(to_try)}.")
    return lines


def _degree(accuracy: float, baseline: float) -> str:
    if accuracy <= baseline + MARGIN_ABOVE_BASELINE:
        return "not learned"
    share = (accuracy - baseline) / (1.0 - baseline)
    if share < _HARDLY:
        return "hardly learned"
    return "learned in part" if share < _IN_PART else "learned"
