"""Figures of a model's predictions, for TensorBoard."""

import io
import warnings
from typing import Any

import numpy as np

from albert_tf.tasks.kinds.base import ConfusionMatrix, Distributions, Figure

# With more labels, numbers in the cells would be too small to read.
_MAX_LABELS_WITH_COUNTS = 12
_NUM_BINS = 30
# Dollar signs in labels are no formulas.
_PLAIN: dict[str, Any] = {"parse_math": False}
_DOTS_PER_INCH = 110


def draw(figure: Figure, title: str) -> bytes:
    """Returns a PNG of a confusion matrix, by shares of rows, or histograms."""
    canvas = make_canvas(5.2, 4.4)
    axes = canvas.figure.add_subplot()
    axes.set_title(title, **_PLAIN)
    if isinstance(figure, ConfusionMatrix):
        _draw_matrix(axes, figure)
    else:
        _draw_distributions(axes, figure)
    return to_png(canvas)


def make_canvas(width: float, height: float) -> Any:
    """Returns a canvas in memory, whatever screen there is; in inches."""
    # Matplotlib takes a second to import, and not every run needs it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as MatplotlibFigure

    return FigureCanvasAgg(
        MatplotlibFigure((width, height), layout="constrained")
    )


def to_png(canvas: Any) -> bytes:
    """Returns the figure of a canvas."""
    content = io.BytesIO()
    with warnings.catch_warnings():
        # A character that the font lacks is a box.
        warnings.filterwarnings("ignore", message="Glyph")
        canvas.figure.savefig(content, format="png", dpi=_DOTS_PER_INCH)
    return content.getvalue()


def _draw_matrix(axes: Any, figure: ConfusionMatrix) -> None:
    counts = figure.counts
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    ticks = range(len(figure.labels))
    axes.set_xticks(ticks, figure.labels, rotation=30, ha="right", **_PLAIN)
    axes.set_yticks(ticks, figure.labels, **_PLAIN)
    axes.set_xlabel("answer")
    axes.set_ylabel("label")
    if len(figure.labels) > _MAX_LABELS_WITH_COUNTS:
        return
    for (row, column), count in np.ndenumerate(counts):
        color = "white" if shares[row, column] > 0.5 else "black"
        axes.text(
            column, row, str(count), ha="center", va="center", color=color
        )


def _draw_distributions(axes: Any, figure: Distributions) -> None:
    groups = {n: v for n, v in figure.groups.items() if len(v)}
    together = np.concatenate(list(groups.values()) or [np.zeros(1)])
    bins = np.linspace(together.min(), together.max() + 1e-9, _NUM_BINS + 1)
    for name, values in groups.items():
        label = f"{name} ({len(values)})"
        axes.hist(values, bins=bins, alpha=0.55, label=label)
    axes.set_xlabel(figure.measure)
    axes.set_ylabel("examples")
    if groups:
        axes.legend()
