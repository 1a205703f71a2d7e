"""Figures of a table: bars of scores, and scores against sizes."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from albert_tf.report.figures import make_canvas, to_png


def draw_bars(
    values: Mapping[str, Sequence[float]], label: str, faint: Collection[str]
) -> bytes:
    """Returns a PNG: the median of each row, a dot for every seed.

    The bars of rows in `faint` are hatched: they are not to be compared.
    """
    names = list(values)
    canvas = make_canvas(7.5, 0.8 + 0.4 * len(names))
    axes = canvas.figure.add_subplot()
    positions = np.arange(len(names))
    medians = [np.median(values[name]) for name in names]
    bars = axes.barh(positions, medians, color="lightsteelblue")
    for bar, name in zip(bars, names, strict=True):
        if name in faint:
            bar.set(facecolor="white", edgecolor="silver", hatch="//")
    for position, name in zip(positions, names, strict=True):
        found = values[name]
        axes.plot(found, [position] * len(found), "k.", markersize=5)
    every = np.concatenate([np.asarray(v) for v in values.values()])
    margin = max(float(np.ptp(every)), 0.01)
    start = every.min() - margin
    if every.min() >= 0:
        start = max(start, 0.0)
    axes.set_xlim(start, every.max() + 0.3 * margin)
    axes.set_yticks(positions, names, parse_math=False)
    axes.invert_yaxis()
    note = " (the axis does not begin at 0)" if start > 0 else ""
    axes.set_xlabel(f"{label}{note}")
    return to_png(canvas)


def draw_sizes(points: Mapping[str, tuple[float, float]], label: str) -> bytes:
    """Returns a PNG: a score of each row against its parameters."""
    canvas = make_canvas(7.5, 4.5)
    axes = canvas.figure.add_subplot()
    for number, (name, (size, score)) in enumerate(points.items()):
        axes.plot(size, score, "o", color=f"C{number % 10}")
        axes.annotate(
            name,
            (size, score),
            fontsize="x-small",
            xytext=(4, 4),
            textcoords="offset points",
            parse_math=False,
        )
    axes.set_xscale("log")
    axes.set_xlabel("parameters of the encoder")
    axes.set_ylabel(label)
    return to_png(canvas)
