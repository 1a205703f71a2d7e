"""Whether a pretraining run learns, and what to try if not, in words."""

import math
from collections.abc import Mapping

from albert_tf.config import PretrainConfig, sharing_plan
from albert_tf.jobs.baseline_comparison import margin_above
from albert_tf.records.sentence_objectives import pretraining_loss_terms

# Shares of the way from the baseline to no errors at all.
_HARDLY, _IN_PART = 0.1, 0.5
# A model that learns is above its baseline after this share of the steps.
_SHARE_TO_LEAVE_BASELINE = 0.1


def pretraining_verdict(
    evaluation: Mapping[str, float],
    config: PretrainConfig,
    *,
    initialized: bool,
) -> list[str]:
    """Returns a sentence for each accuracy of a run's last evaluation.

    After them comes what to try, where one is hardly above its baseline.
    `initialized`: the run began with given weights.
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
        steps = f"more steps than {config.training.num_train_steps}"
        lines.append(f"To try: {_to_try(config, initialized, steps)}.")
    return lines


def no_learning_warning(
    evaluation: Mapping[str, float],
    config: PretrainConfig,
    step: int,
    *,
    initialized: bool,
) -> str:
    """Returns why to stop a run that predicts only one token, or nothing."""
    num_train_steps = config.training.num_train_steps
    accuracy = evaluation["masked_lm_accuracy"]
    baseline = evaluation["most_frequent_token_accuracy"]
    if (
        step < _SHARE_TO_LEAVE_BASELINE * num_train_steps
        or _degree(accuracy, baseline) != "not learned"
    ):
        return ""
    return (
        f"The held-out masked-LM accuracy is {accuracy:.1%} at step {step} "
        f"of {num_train_steps}, and always predicting the most frequent "
        f"token has {baseline:.1%}: the model is not learning. To try, in "
        f"another --run_dir: {_to_try(config, initialized)}."
    )


def _degree(accuracy: float, baseline: float) -> str:
    if baseline == 1.0:
        return "not measured, since all labels are alike"
    if accuracy <= baseline + margin_above(baseline):
        return "not learned"
    share = (accuracy - baseline) / (1.0 - baseline)
    if share < _HARDLY:
        return "hardly learned"
    return "learned in part" if share < _IN_PART else "learned"


def _to_try(config: PretrainConfig, initialized: bool, *more: str) -> str:
    """Returns settings with which a model may learn that does not."""
    optimizer = config.optimizer
    to_try = [*more, f"--learning_rate={optimizer.learning_rate / 3:.2g}"]
    if "muon" not in optimizer.optimizer:
        to_try.append("--optimizer=muon --beta_2=0.98 --learning_rate=0.002")
    depth = len(sharing_plan(config.model))
    if config.model.position_init != "sinusoidal" and not initialized:
        scale = 1 / math.sqrt(2 * depth)
        to_try.append(
            f"--position_init=sinusoidal --output_init_scale={scale:.2g}"
        )
    if depth > 2 and not config.pretraining.depth_schedule:
        half = config.training.num_train_steps // 2
        to_try.append(f"--depth_schedule=0:2,{half}:{depth}")
    return ", ".join(to_try)
