"""Figures of a model, and TensorBoard reading them."""

import io

import numpy as np
import pytest
from PIL import Image
from pretraining_runs import events

from albert_tf.report.figures import (
    draw,
    draw_histograms,
    draw_lines,
    draw_reliability,
    draw_scatter,
    is_wide,
)
from albert_tf.rundir.monitor import Monitor
from albert_tf.tasks.kinds.base import ConfusionMatrix, Distributions
from albert_tf.tasks.metrics.calibration import reliability


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), np.float64)


def matrix(counts):
    return ConfusionMatrix(["no", "yes"], np.array(counts))


def test_a_row_is_shaded_by_its_shares():
    """Fields are dark where nearly all of the answers of a label are."""
    right = pixels(draw(matrix([[90, 0], [0, 3]]), "t"))
    wrong = pixels(draw(matrix([[0, 90], [3, 0]]), "t"))
    assert right.shape == wrong.shape
    changed = np.abs(right - wrong).sum(axis=-1) > 300
    # Both labels' rows change their shade, however few examples one has.
    rows = np.flatnonzero(changed.any(axis=1))
    assert np.ptp(rows) > right.shape[0] / 2
    assert changed.mean() > 0.2


@pytest.mark.parametrize(
    "figure",
    [
        ConfusionMatrix([f"label {n}" for n in range(40)], np.eye(40)),
        matrix([[0, 0], [0, 0]]),
        Distributions("x", {"one": np.arange(9.0), "none": np.zeros(0)}),
        Distributions("x", {"none": np.zeros(0)}),
        ConfusionMatrix(["$$", "\U0001f600"], np.eye(2)),
    ],
)
def test_anything_can_be_drawn(figure, recwarn):
    assert pixels(draw(figure, "$_$")).std() > 1
    assert not recwarn.list


def test_tensorboard_has_the_figure(tmp_path):
    monitor = Monitor(str(tmp_path), num_steps=5, start_step=0)
    png = draw(matrix([[1, 2], [3, 4]]), "MRPC, dev")
    monitor.log_figure("answers", png, step=3)
    monitor.close()
    found = events(tmp_path, "eval")
    (event,) = found.Tensors("answers")
    width, height, content = event.tensor_proto.string_val
    assert event.step == 3
    assert content == png
    assert (int(width), int(height)) == Image.open(io.BytesIO(png)).size
    metadata = found.SummaryMetadata("answers")
    assert metadata.plugin_data.plugin_name == "images"


@pytest.mark.parametrize(
    "draw_it",
    [
        lambda: draw_lines({"a": [(np.arange(2), np.arange(2))]}, "step"),
        lambda: draw_lines({n: [([0], [1])] * 2 for n in "abcd"}, "x", "y"),
        lambda: draw_histograms({"a": np.arange(9), "b": np.ones(1)}, "x"),
        lambda: draw_scatter(np.arange(9.0), np.arange(9.0)[::-1]),
        lambda: draw_reliability(
            {"a": reliability(np.array([[1.0, 0.0]]), np.array([0]))}
        ),
        lambda: draw(
            ConfusionMatrix([f"label {n}" for n in range(14)], np.eye(14)), ""
        ),
    ],
)
def test_figures_of_reports(draw_it, recwarn):
    assert pixels(draw_it()).std() > 1
    assert not recwarn.list


def test_many_names_make_a_wide_figure():
    assert is_wide(ConfusionMatrix(["n"] * 14, np.eye(14)))
    assert not is_wide(ConfusionMatrix(["n"] * 50, np.eye(50)))
    assert not is_wide(matrix([[1, 0], [0, 1]]))
