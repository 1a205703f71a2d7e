"""The report of tables: what was measured beside what was published."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.report.page import Figure, Page, Paragraph, Part, Section, Table
from experiments import figures
from experiments.ledger import DIVERGED, Ledger
from experiments.results import (
    LEARNED_MARGIN,
    MASKED_LM,
    Finding,
    TableResults,
    is_loss,
)
from experiments.tables import PUBLISHED_COLUMNS
from experiments.units import Figures

# Below it, or above 1 less it, chance does not explain a difference.
_SIGNIFICANT = 0.05


class _Plot(NamedTuple):
    """What is drawn of a measure: a line for each row and seed."""

    measure: str
    points: Callable[[Figures], Iterable[tuple[float, float]]]
    x_label: str
    y_label: str


_PLOTS = (
    _Plot(
        "layers",
        lambda found: enumerate(found["l2_distance"], start=1),
        "layer",
        "L2 distance of input and output",
    ),
    _Plot(
        "layers",
        lambda found: enumerate(found["cosine_similarity"], start=1),
        "layer",
        "cosine of input and output",
    ),
    _Plot(
        "any_depth",
        lambda found: [
            (row["applications"], row["masked_lm_accuracy"])
            for row in found["depths"]
        ],
        "applications of the block",
        "held-out masked-LM accuracy",
    ),
    _Plot(
        "any_depth",
        lambda found: [
            (row["applications"], row["sentence_order_accuracy"])
            for row in found["depths"]
        ],
        "applications of the block",
        "held-out sentence-order accuracy",
    ),
)


def report(
    results: Mapping[str, TableResults], caption: str, ledger: Ledger
) -> Page:
    """Returns the page of these tables by name; `caption` is the scale's."""
    return Page(
        "The paper's tables, measured",
        [
            Paragraph(caption),
            Paragraph(_circumstances(ledger)),
            Paragraph(
                "Measured scores are medians over the seeds in per cent, with "
                "the range in brackets. A model whose masked-LM accuracy is "
                f"less than {LEARNED_MARGIN:.0%} above copying and guessing is "
                "counted as not comparable. A claim is tested by its "
                "difference in each seed (one-sided t-test): it shows where "
                f"p is below {_SIGNIFICANT}."
            ),
        ],
        [_section(name, found) for name, found in results.items()],
    )


def _circumstances(ledger: Ledger) -> str:
    entries = list(ledger.entries())
    if not entries:
        return "Nothing has been computed yet."
    processors = sorted({entry["processor"] for entry in entries})
    hours = sum(entry["seconds"] for entry in entries) / 3600
    versions = entries[-1]["versions"].items()
    return (
        f"Computed on {', '.join(processors)}, every model on one core: "
        f"{hours:.1f} hours of a core in all. Versions: "
        f"{', '.join(f'{name} {version}' for name, version in versions)}."
    )


def _section(name: str, results: TableResults) -> Section:
    parts: list[Part] = [_numbers(results)]
    if results.table.note:
        parts.append(Paragraph(results.table.note))
    if findings := results.findings():
        parts.append(_claims(findings))
    if any(row.published for row in results.rows):
        parts.append(_published(results))
    parts += _curves(name, results)
    parts += _bars(name, results)
    parts += _sizes(name, results)
    parts += _plots(name, results)
    return Section(f"{results.table.title} (--table={name})", parts)


def _numbers(results: TableResults) -> Table:
    columns = results.columns
    header = ["row", "parameters", "sequences per second", *columns, "seeds"]
    content = []
    for row in results.rows:
        scores = [_median(results.values(row.name, c), c) for c in columns]
        content.append(
            [
                row.name,
                f"{results.parameters(row.name):,}",
                _rate(results.pretraining(row.name)),
                *scores,
                _state(results, row.name),
            ]
        )
    return Table(header, content, "As measured.")


def _rate(found: Sequence[Figures]) -> str:
    if not found:
        return ""
    return f"{np.median([one['sequences_per_second'] for one in found]):.0f}"


def _median(values: Sequence[float], column: str) -> str:
    """Returns the median, a share in per cent, and the range of several."""
    if not values:
        return ""
    scale, digits = (1, 3) if is_loss(column) else (100, 1)
    text = f"{scale * np.median(values):.{digits}f}"
    if len(values) > 1:
        low, high = scale * min(values), scale * max(values)
        text += f" ({low:.{digits}f}–{high:.{digits}f})"
    return text


def _state(results: TableResults, name: str) -> str:
    """Returns the number of seeds measured, and what befell others."""
    cells = results.of_row(name)
    measured = [cell for cell in cells if cell.scores]
    text = f"{len(measured)} of {len(cells)}"
    if diverged := sum(cell.status == DIVERGED for cell in cells):
        text += f", {diverged} diverged"
    if weak := sum(not cell.learned for cell in measured):
        text += f", {weak} not comparable"
    return text


def _claims(findings: Sequence[Finding]) -> Table:
    rows = [
        [
            found.claim.text,
            found.column,
            _difference(found),
            f"{found.agreeing} of {len(found.differences)}",
            "" if math.isnan(found.p_value) else f"{found.p_value:.3f}",
            verdict(found),
        ]
        for found in findings
    ]
    header = ["claim", "scores", "points", "seeds that agree", "p", "verdict"]
    return Table(header, rows, "Claims on these scores, above 0 for them.")


def _difference(finding: Finding) -> str:
    if is_loss(finding.column):
        return f"{finding.mean:+.3f} nats"
    return f"{100 * finding.mean:+.2f}"


def verdict(finding: Finding) -> str:
    """Returns in words what the seeds say of a claim."""
    if len(finding.differences) < 2:
        return "one seed cannot tell"
    if finding.p_value < _SIGNIFICANT:
        return "shows"
    if finding.p_value > 1 - _SIGNIFICANT:
        return "the opposite shows"
    return "cannot be told"


def _published(results: TableResults) -> Table:
    """Returns the paper's own scores, where it prints them."""
    content = [
        [row.name, *(row.published.get(c, "") for c in PUBLISHED_COLUMNS)]
        for row in results.rows
    ]
    return Table(["row", *PUBLISHED_COLUMNS], content, "As published.")


def _curves(name: str, results: TableResults) -> list[Part]:
    if MASKED_LM not in results.columns:
        return []
    series = {
        row.name: [
            [
                (point["step"], point["masked_lm_accuracy"])
                for point in f["curve"]
            ]
            for f in results.pretraining(row.name)
        ]
        for row in results.rows
    }
    return _lines(f"{name}-curves", series, "step", f"held-out {MASKED_LM}")


def _plots(name: str, results: TableResults) -> list[Part]:
    parts: list[Part] = []
    for number, plot in enumerate(_PLOTS):
        series = {
            row.name: [
                list(plot.points(found))
                for found in results.measured(row.name, plot.measure)
            ]
            for row in results.rows
        }
        file = f"{name}-{plot.measure}-{number}"
        parts += _lines(file, series, plot.x_label, plot.y_label)
    return parts


def _lines(
    file: str, series: figures.Series, x_label: str, y_label: str
) -> list[Part]:
    """Returns a figure; none where there is no line."""
    series = {name: lines for name, lines in series.items() if lines}
    if not series:
        return []
    png = figures.draw_lines(series, x_label, y_label)
    caption = f"{y_label} by {x_label}; a line for each seed."
    return [Figure(png, caption.capitalize(), f"{file}.png")]


def _bars(name: str, results: TableResults) -> list[Part]:
    parts: list[Part] = []
    for column in results.columns:
        values = {r.name: results.values(r.name, column) for r in results.rows}
        values = {row: found for row, found in values.items() if found}
        if len(values) > 1:
            png = figures.draw_bars(values, column)
            caption = f"{column.capitalize()}: medians, a dot for each seed."
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
