"""Pictures of how a model answers, for TensorBoard."""

import io
import warnings

import numpy as np

from albert_tf.tasks.kinds.base import ConfusionMatrix, Distributions, Figure

# Labels beyond which numbers in the fields are too small to be read.
_MOST_NUMBERS = 12
_BINS = 30
# Dollar signs in labels are no formulas.
_PLAIN = {"parse_math": False}
_DOTS_PER_INCH = 110


def draw(picture: Figure, title: str) -> bytes:
    """Returns a PNG.

    A confusion matrix has a row for each label, shaded by the share of its
    examples that got each answer; distributions are drawn over one another.
    """
    # It takes a second to load, and a run without pictures needs none. The
    # figure is drawn in memory, whatever screen there is.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(5.2, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, **_PLAIN)
    if isinstance(picture, ConfusionMatrix):
        _draw_matrix(axes, picture)
    else:
        _draw_distributions(axes, picture)
    content = io.BytesIO()
    with warnings.catch_warnings():
        # A character that the font lacks is a box.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(content, format="png", dpi=_DOTS_PER_INCH)
    return content.getvalue()


def _draw_matrix(axes: object, picture: ConfusionMatrix) -> None:
    counts = picture.counts
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    places = range(len(picture.labels))
    axes.set_xticks(places, picture.labels, rotation=30, ha="right", **_PLAIN)
    axes.set_yticks(places, picture.labels, **_PLAIN)
    axes.set_xlabel("answer")
    axes.set_ylabel("label")
    if len(picture.labels) > _MOST_NUMBERS:
        return
    for row in places:
        for column in places:
            axes.text(
                column,
                row,
                str(counts[row, column]),
                ha="center",
                va="center",
                color="white" if shares[row, column] > 0.5 else "black",
            )


def _draw_distributions(axes: object, picture: Distributions) -> None:
    groups = {n: v for n, v in picture.groups.items() if len(v)}
    together = np.concatenate(list(groups.values()) or [np.zeros(1)])
    bins = np.linspace(together.min(), together.max() + 1e-9, _BINS + 1)
    for name, values in groups.items():
        label = f"{name} ({len(values)})"
        axes.hist(values, bins=bins, alpha=0.55, label=label)
    axes.set_xlabel(picture.measure)
    axes.set_ylabel("examples")
    if groups:
        axes.legend()
