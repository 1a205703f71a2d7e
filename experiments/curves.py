"""Curves of held-out scores by work, and how far one is ahead of another."""

import math
from typing import NamedTuple

import numpy as np

from experiments.estimate import pretraining_flops
from experiments.units import Figures, Unit, pretraining_config

# Axes on which rows of equal arithmetic are compared.
WORK = {"flops": "operations", "seconds": "seconds"}


class Curve(NamedTuple):
    """The evaluations of a run of pretraining, each an array over them.

    Attributes:
        flops: of training until then.
        seconds: of training until then at the run's median rate, without
            compilation and evaluations.
    """

    step: np.ndarray
    flops: np.ndarray
    seconds: np.ndarray
    masked_lm_loss: np.ndarray
    masked_lm_accuracy: np.ndarray


def curve(unit: Unit, figures: Figures) -> Curve:
    """Returns the curve of a unit of pretraining."""
    config = pretraining_config(unit)
    points = figures["curve"]
    step, loss, accuracy = (
        np.array([point[name] for point in points])
        for name in ("step", "masked_lm_loss", "masked_lm_accuracy")
    )
    flops = np.array([pretraining_flops(config, int(s)) for s in step])
    rate = figures["sequences_per_second"] / config.training.train_batch_size
    return Curve(step, flops, step / rate, loss, accuracy)


class Lead(NamedTuple):
    """The distance of one curve of losses below another.

    Attributes:
        share: of the other's whole work, where the first has the best loss of
            the other; infinite where it never has.
        smallest: least difference where both have been evaluated; negative
            where the first is behind.
        last: difference at the end of the shorter one.
    """

    share: float
    smallest: float
    last: float


def lead(ours: Curve, theirs: Curve, work: str) -> Lead:
    """Returns the lead of a curve over another, interpolated linearly.

    `work` is the axis on which they are compared, such as `flops`.
    """
    our_work, their_work = getattr(ours, work), getattr(theirs, work)
    begin = max(our_work[0], their_work[0])
    end = min(our_work[-1], their_work[-1])
    points = np.union1d(our_work, their_work)
    points = points[(points >= begin) & (points <= end)]
    differences = np.interp(
        points, their_work, theirs.masked_lm_loss
    ) - np.interp(points, our_work, ours.masked_lm_loss)
    # The lowest loss until each evaluation falls, so it can be inverted.
    lowest = np.minimum.accumulate(ours.masked_lm_loss)
    best = theirs.masked_lm_loss.min()
    reached = math.inf
    if lowest[-1] <= best:
        reached = np.interp(-best, -lowest, our_work)
    return Lead(
        float(reached / their_work[-1]),
        float(differences.min()),
        float(differences[-1]),
    )
