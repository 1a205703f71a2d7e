"""Figures of runs side by side."""

import io
from collections.abc import Mapping, Sequence

from albert_tf.experiments.recipe import Point

_DOTS_PER_INCH = 110


def draw_curves(curves: Mapping[str, Sequence[Point]], metric: str) -> bytes:
    """Returns a PNG: a metric at equal arithmetic, and at equal time.

    Args:
        curves: the evaluations of each run, by the name in the legend.
        metric: its name.
    """
    # Matplotlib takes a second to import.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = FigureCanvasAgg(Figure(figsize=(11, 5), layout="constrained"))
    left, right = canvas.figure.subplots(1, 2, sharey=True)
    for name, points in curves.items():
        values = [point.metrics[metric] for point in points]
        left.plot([p.flops / 1e12 for p in points], values, label=name)
        right.plot([p.seconds / 60 for p in points], values, label=name)
    left.set_xlabel("training arithmetic (10^12 operations)")
    right.set_xlabel("training time on one core (minutes)")
    left.set_ylabel(f"held-out {metric}")
    right.legend(fontsize="x-small", ncols=2)
    content = io.BytesIO()
    canvas.figure.savefig(content, format="png", dpi=_DOTS_PER_INCH)
    return content.getvalue()
