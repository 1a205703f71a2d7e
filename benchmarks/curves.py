"""Figures that compare runs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from albert_tf.report.figures import make_canvas, to_png
from benchmarks.recipe import Point

if TYPE_CHECKING:
    from benchmarks.initialization import Measurement

_LINE_STYLES = ("solid", "dashed", "dotted")


def draw_curves(
    curves: Mapping[str, Sequence[Sequence[Point]]], metric: str
) -> bytes:
    """Returns a PNG: a metric at equal arithmetic, and at equal time.

    `curves` are the evaluations of each candidate, one curve per seed. Those
    of candidates that were stopped before the others are gray.
    """
    canvas = make_canvas(11, 5)
    left, right = canvas.figure.subplots(1, 2, sharey=True)
    lengths = {name: max(map(len, runs)) for name, runs in curves.items()}
    finished = [n for n in curves if lengths[n] == max(lengths.values())]
    for name, runs in curves.items():
        style = {"label": "stopped earlier", "color": "lightgray", "zorder": 1}
        if name in finished:
            number = finished.index(name)
            # There are ten colours.
            style = {
                "label": name,
                "color": f"C{number % 10}",
                "linestyle": _LINE_STYLES[number // 10 % len(_LINE_STYLES)],
            }
        for points in runs:
            values = [point.metrics[metric] for point in points]
            left.plot([p.flops / 1e12 for p in points], values, **style)
            right.plot([p.seconds / 60 for p in points], values, **style)
    left.set_xlabel("training arithmetic (10^12 operations)")
    right.set_xlabel("training time on one core (minutes)")
    left.set_ylabel(f"held-out {metric}")
    lines, labels = right.get_legend_handles_labels()
    named = dict(zip(labels, lines, strict=True))
    right.legend(named.values(), named.keys(), fontsize="x-small")
    return to_png(canvas)


def draw_initializations(measurements: "Sequence[Measurement]") -> bytes:
    """Returns a PNG: outputs and gradients of untrained models by application.

    All initializations are measured at the same depths.
    """
    canvas = make_canvas(11, 8)
    axes = canvas.figure.subplots(2, 2)
    names = list(dict.fromkeys(m.initialization for m in measurements))
    depths = sorted({m.depth for m in measurements})
    styles = dict(zip(names, reversed(_LINE_STYLES), strict=True))
    colors = {depth: f"C{number}" for number, depth in enumerate(depths)}
    for axis, attribute, label in (
        (axes[0, 0], "output_change", "relative change by an application"),
        (axes[0, 1], "token_similarity", "mean cosine of two tokens"),
        (axes[1, 0], "gradient_norm", "gradient norm of an application"),
    ):
        for m in measurements:
            axis.plot(
                range(1, m.depth + 1),
                getattr(m, attribute),
                color=colors[m.depth],
                linestyle=styles[m.initialization],
                marker=".",
            )
        axis.set_xlabel("application")
        axis.set_ylabel(label)
        axis.set_yscale("log" if attribute != "token_similarity" else "linear")
    for name, style in styles.items():
        axes[0, 0].plot([], [], color="black", linestyle=style, label=name)
        axes[1, 1].loglog(
            depths,
            [m.sensitivity for m in measurements if m.initialization == name],
            color="black",
            linestyle=style,
            marker=".",
        )
    for depth, color in colors.items():
        axes[0, 0].plot([], [], color=color, label=f"{depth} applications")
    axes[0, 0].legend(fontsize="small")
    axes[1, 1].set_xticks(depths, map(str, depths), minor=False)
    axes[1, 1].set_xlabel("applications")
    axes[1, 1].set_ylabel("sensitivity of the output to the shared weights")
    return to_png(canvas)
