"""Curves by work, and how far one is ahead of another."""

import math

import numpy as np
import pytest

from experiments.curves import Curve, Lead, curve, lead
from experiments.estimate import pretraining_flops
from experiments.plan import Planner, Text
from experiments.scales import SCALES
from experiments.tables import TABLES
from experiments.units import pretraining_config


def test_a_curve_has_the_arithmetic_and_the_time_of_training():
    planner = Planner(SCALES["tiny"], Text("books"))
    (cell, *_) = planner.cells(TABLES["peers"], [1])
    points = [
        {"step": step, "masked_lm_loss": loss, "masked_lm_accuracy": 0.1}
        for step, loss in ((750, 6.0), (1500, 5.0))
    ]
    # Batches are of 64.
    figures = {"curve": points, "sequences_per_second": 128.0}
    found = curve(cell.pretraining, figures)
    assert found.seconds.tolist() == [375.0, 750.0]
    whole = pretraining_flops(pretraining_config(cell.pretraining))
    assert found.flops == pytest.approx([whole / 2, whole])
    assert found.masked_lm_loss.tolist() == [6.0, 5.0]


def points(*rows):
    flops, seconds, losses = map(np.array, zip(*rows, strict=True))
    return Curve(flops, flops, seconds, losses, losses)


def test_a_lead_is_interpolated():
    ours = points((10, 1, 6.0), (20, 2, 5.0), (30, 3, 5.5), (40, 4, 3.0))
    theirs = points((20, 1, 6.5), (40, 2, 6.0), (60, 3, 5.25))
    # At 20, 30 and 40: 1.5, 0.75 and 3.0. Theirs ends at 5.25, ours at 17.5.
    assert lead(ours, theirs, "flops") == Lead(
        share=pytest.approx(17.5 / 60), smallest=0.75, last=3.0
    )
    # At 1, 2 and 3 seconds: 0.5, 1.0 and -0.25.
    assert lead(ours, theirs, "seconds") == Lead(
        share=pytest.approx(1.75 / 3), smallest=-0.25, last=-0.25
    )
    assert lead(theirs, ours, "flops").share == math.inf
