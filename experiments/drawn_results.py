"""The figures of a table's results: curves, bars, sizes, and measures."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.report.figures import Line, draw_lines
from albert_tf.report.page import Figure, Part
from experiments import figures
from experiments.curves import WORK
from experiments.results import MASKED_LM, TableResults


class _Plot(NamedTuple):
    """What is drawn of a measure: lines for each row and seed."""

    measure: str
    lines: Callable[[Any, str], list[Line]]
    values: str
    x_label: str
    y_label: str


def _by_layer(found: Mapping[str, Any], values: str) -> list[Line]:
    return [(range(1, len(found[values]) + 1), found[values])]


def _by_depth(
    found: Mapping[str, Any], values: str, axis: str = "applications"
) -> list[Line]:
    depths = found["depths"]
    return [([d[axis] for d in depths], [d[values] for d in depths])]


def _by_application(found: Mapping[str, Any], values: str) -> list[Line]:
    """Returns a line for each depth, where it ends."""
    return [line for d in found["depths"] for line in _by_layer(d, values)]


_APPLICATION = "application (a line for each depth)"
_APPLICATIONS = "applications of the block"
_PLOTS = (
    _Plot(
        *("layers", _by_layer, "l2_distance"),
        "layer",
        "L2 distance of input and output",
    ),
    _Plot(
        *("layers", _by_layer, "cosine_similarity"),
        "layer",
        "cosine of input and output",
    ),
    _Plot(
        *("any_depth", _by_depth, "masked_lm_accuracy"),
        _APPLICATIONS,
        "held-out masked-LM accuracy",
    ),
    _Plot(
        *("any_depth", _by_depth, "sentence_order_accuracy"),
        _APPLICATIONS,
        "held-out sentence-order accuracy",
    ),
    _Plot(
        *("initialization", _by_application, "output_change"),
        _APPLICATION,
        "relative change of the states",
    ),
    _Plot(
        *("initialization", _by_application, "token_similarity"),
        _APPLICATION,
        "mean cosine of two tokens",
    ),
    _Plot(
        *("initialization", _by_application, "gradient_norm"),
        _APPLICATION,
        "gradient norm of an application",
    ),
    _Plot(
        *("initialization", _by_depth, "sensitivity"),
        _APPLICATIONS,
        "sensitivity of the output to the shared weights",
    ),
    _Plot(
        *("any_depth", functools.partial(_by_depth, axis="flops")),
        *("masked_lm_accuracy", "operations for a sequence"),
        "held-out masked-LM accuracy",
    ),
)


def drawn(name: str, results: TableResults) -> list[Part]:
    """Returns the figures of a table, `name`, as far as it has values."""
    return [
        *_curves(name, results),
        *_bars(name, results),
        *_sizes(name, results),
        *_plots(name, results),
    ]


def _curves(name: str, results: TableResults) -> list[Part]:
    parts: list[Part] = []
    if MASKED_LM not in results.columns:
        return parts
    curves = {r.name: results.curves(r.name).values() for r in results.rows}
    equal_work = any(row.equal_work for row in results.rows)
    for axis, label in WORK.items() if equal_work else (("step", "step"),):
        series = {
            row: [(getattr(c, axis), c.masked_lm_accuracy) for c in found]
            for row, found in curves.items()
        }
        file = f"{name}-curves" + f"-{axis}" * equal_work
        parts += _lines(file, series, label, f"held-out {MASKED_LM}")
    return parts


def _bars(name: str, results: TableResults) -> list[Part]:
    parts: list[Part] = []
    for column in results.columns:
        values = {r.name: results.values(r.name, column) for r in results.rows}
        values = {row: found for row, found in values.items() if found}
        if len(values) > 1:
            weak = [row for row in values if not results.has_learned(row)]
            png = figures.draw_bars(values, column, weak)
            caption = f"{_sentence(column)}: medians, a dot for each seed."
            if weak:
                caption += " Hatched: not comparable."
            file = f"{name}-{column.replace(' ', '-').lower()}.png"
            parts.append(Figure(png, caption, file))
    return parts


def _sizes(name: str, results: TableResults) -> list[Part]:
    """Returns scores against parameters, where at least three sizes differ."""
    points = {
        row.name: (
            results.parameters(row.name),
            float(np.median(results.values(row.name, MASKED_LM))),
        )
        for row in results.rows
        if results.values(row.name, MASKED_LM)
    }
    if len({size for size, _ in points.values()}) < 3:
        return []
    png = figures.draw_sizes(points, f"held-out {MASKED_LM}")
    caption = "Score against the parameters of the encoder: medians."
    return [Figure(png, caption, f"{name}-sizes.png")]


def _plots(name: str, results: TableResults) -> list[Part]:
    parts: list[Part] = []
    for number, plot in enumerate(_PLOTS):
        series = {
            row.name: [
                line
                for found in results.measured(row.name, plot.measure)
                for line in plot.lines(found, plot.values)
            ]
            for row in results.rows
        }
        file = f"{name}-{plot.measure}-{number}"
        parts += _lines(file, series, plot.x_label, plot.y_label)
    return parts


def _lines(
    file: str,
    series: Mapping[str, Sequence[Line]],
    x_label: str,
    y_label: str,
) -> list[Part]:
    """Returns a figure; none where there is no line."""
    series = {name: lines for name, lines in series.items() if lines}
    if not series:
        return []
    png = draw_lines(series, x_label, y_label)
    caption = f"{y_label} by {x_label}; a line for each seed."
    return [Figure(png, _sentence(caption), f"{file}.png")]


def _sentence(text: str) -> str:
    """Returns a text that begins with a capital; names keep theirs."""
    return text[:1].upper() + text[1:]
