"""Figures of a run and of a model's predictions, as PNG."""

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.kinds.base import ConfusionMatrix, Distributions, Figure
from albert_tf.tasks.metrics.calibration import Reliability

# With more labels, numbers in the cells would be too small to read.
_MAX_LABELS_WITH_COUNTS = 12
_NUM_BINS = 30
# Dollar signs in labels are no formulas.
_PLAIN: dict[str, Any] = {"parse_math": False}
_DOTS_PER_INCH = 110
# More labels than this stand too close for their names.
_MAX_LABELS_WITH_NAMES = 40
# Lines with fewer points show each of them.
_FEW_POINTS = 30
# Names of more lines take much room.
_FEW_NAMES = 3
# There are ten colours.
_LINE_STYLES = ("solid", "dashed", "dotted")
# x and y of a line.
Line = tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]


def draw(figure: Figure, title: str) -> bytes:
    """Returns a PNG of a confusion matrix, by shares of rows, or histograms."""
    wide = is_wide(figure)
    canvas = make_canvas(*((8.4, 7.6) if wide else (5.2, 4.4)))
    axes = canvas.figure.add_subplot()
    axes.set_title(title, **_PLAIN)
    if isinstance(figure, ConfusionMatrix):
        _draw_matrix(axes, figure)
    else:
        _draw_distributions(axes, figure)
    return to_png(canvas)


def is_wide(figure: Figure) -> bool:
    """Returns whether a figure has names of very many labels."""
    return (
        isinstance(figure, ConfusionMatrix)
        and _MAX_LABELS_WITH_COUNTS
        < len(figure.labels)
        <= _MAX_LABELS_WITH_NAMES
    )


def draw_lines(
    lines: Mapping[str, Sequence[Line]], x_label: str, y_label: str = ""
) -> bytes:
    """Returns a PNG of lines; those of a name, such as seeds, look alike."""
    many = len(lines) > _FEW_NAMES
    canvas = make_canvas(*((7.5, 4.5) if many else (5.2, 3.0)))
    axes = canvas.figure.add_subplot()
    for number, (name, alike) in enumerate(lines.items()):
        style = {
            "color": f"C{number % 10}",
            "linestyle": _LINE_STYLES[number // 10 % len(_LINE_STYLES)],
        }
        for x, y in alike:
            marker = "o" if len(x) < _FEW_POINTS else ""
            axes.plot(x, y, marker=marker, markersize=4, **style)
        axes.plot([], [], label=name, **style)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3)
    if len(lines) > 1:
        axes.legend(fontsize="x-small" if many else None)
    return to_png(canvas)


def draw_grid(
    matrices: Mapping[str, np.ndarray], labels: Sequence[str]
) -> bytes:
    """Returns a PNG of square matrices by their names, of equal labels."""
    columns = min(len(matrices), 3)
    rows = -(-len(matrices) // columns)
    size = max(3.0, 0.22 * len(labels))
    canvas = make_canvas(size * columns, size * rows)
    grid = canvas.figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(matrices) :]:
        axes.axis("off")
    ticks = range(len(labels))
    for axes, (name, matrix) in zip(grid, matrices.items(), strict=False):
        axes.imshow(matrix, cmap="Blues", vmin=0)
        axes.set_title(name, **_PLAIN)
        axes.set_xticks(ticks, labels, rotation=90, fontsize=7, **_PLAIN)
        axes.set_yticks(ticks, labels, fontsize=7, **_PLAIN)
    return to_png(canvas)


def draw_histograms(groups: Mapping[str, np.ndarray], x_label: str) -> bytes:
    """Returns a PNG of the shares of values, in bins, for each group."""
    canvas = make_canvas(5.2, 3.0)
    axes = canvas.figure.add_subplot()
    highest = max(values.max() for values in groups.values())
    bins = np.linspace(0, highest + 1, _NUM_BINS + 1)
    for name, values in groups.items():
        weights = np.full(len(values), 1 / len(values))
        axes.hist(values, bins=bins, weights=weights, alpha=0.55, label=name)
    axes.set_xlabel(x_label)
    axes.set_ylabel("share of the rows")
    axes.legend()
    return to_png(canvas)


def draw_bars(heights: Mapping[str, int], x_label: str, y_label: str) -> bytes:
    """Returns a PNG of bars by their names."""
    canvas = make_canvas(5.2, 3.0)
    axes = canvas.figure.add_subplot()
    axes.bar(range(len(heights)), heights.values(), width=0.9)
    axes.set_xticks(range(len(heights)), heights, rotation=45, ha="right")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    return to_png(canvas)


def draw_scatter(gold: np.ndarray, predicted: np.ndarray) -> bytes:
    """Returns a PNG of predicted numbers over gold ones."""
    canvas = make_canvas(5.2, 4.4)
    axes = canvas.figure.add_subplot()
    axes.scatter(gold, predicted, s=9, alpha=0.4)
    ends = [gold.min(), gold.max()]
    axes.plot(ends, ends, color="gray", linewidth=1)
    axes.set_xlabel("label")
    axes.set_ylabel("answer")
    return to_png(canvas)


def draw_reliability(measured: Mapping[str, Reliability]) -> bytes:
    """Returns a PNG of accuracy over confidence, for each of the names."""
    canvas = make_canvas(5.2, 4.4)
    axes = canvas.figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="gray", linewidth=1)
    for name, found in measured.items():
        # The area of a point is the share of the answers there.
        sizes = 5 + 600 * found.counts / found.counts.sum()
        x, y = found.confidences, found.accuracies
        axes.scatter(x, y, s=sizes, alpha=0.6, label=name)
    axes.set_xlabel("probability of the answer")
    axes.set_ylabel("share of right answers")
    axes.grid(alpha=0.3)
    # Points in the legend are as large as those of few answers.
    for handle in axes.legend().legend_handles[-len(measured) :]:
        handle.set_sizes([40])
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
    if len(figure.labels) <= _MAX_LABELS_WITH_NAMES:
        _name_labels(axes, figure.labels)
    axes.set_xlabel("answer")
    axes.set_ylabel("label")
    if len(figure.labels) > _MAX_LABELS_WITH_COUNTS:
        return
    for (row, column), count in np.ndenumerate(counts):
        color = "white" if shares[row, column] > 0.5 else "black"
        axes.text(
            column, row, str(count), ha="center", va="center", color=color
        )


def _name_labels(axes: Any, labels: list[str]) -> None:
    many = len(labels) > _MAX_LABELS_WITH_COUNTS
    short = [n if len(n) <= 24 else f"{n[:23]}…" for n in labels]
    style = {**_PLAIN, "fontsize": 8 if many else 10}
    angle = 90 if many else 30
    align = "center" if many else "right"
    axes.set_xticks(range(len(short)), short, rotation=angle, ha=align, **style)
    axes.set_yticks(range(len(short)), short, **style)


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
