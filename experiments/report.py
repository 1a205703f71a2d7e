"""The report of tables: what was measured beside what was published."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.report.page import Figure, Page, Paragraph, Part, Section, Table
from experiments.curves import WORK, lead
from experiments.drawn_results import drawn
from experiments.ledger import DIVERGED, Ledger
from experiments.results import (
    LEARNED_MARGIN,
    MASKED_LM,
    Finding,
    TableResults,
    is_loss,
)
from experiments.tables import PUBLISHED_COLUMNS, RELATIVE_THROUGHPUT
from experiments.units import Figures, in_order

# Chance does not explain a difference below this, or above 1 less this.
_SIGNIFICANT = 0.05
# The answers of early exit, by the output.
_EXITS = {
    "masked tokens": "masked_lm_logits",
    "the sentence order": "sentence_order_logits",
}
_EXIT_COLUMNS = {
    "accuracy": "early exit",
    "fixed_accuracy": "fixed depth of as much arithmetic",
    "full_accuracy": "all applications",
}
_EXIT_CAPTION = (
    "Early exit, accuracy in per cent: an answer is final after the first "
    "application, from the second on, that gives the same as the one before, "
    "at the latest after as many as were trained. The fixed depth is between "
    "two, interpolated. The mean number of applications is a saving on paper, "
    "for each answer: a batch ends with its last one, other tokens are "
    "computed until then, and the head's work after each application is not "
    "counted."
)


def report(
    results: Mapping[str, TableResults], caption: str, ledger: Ledger
) -> Page:
    """Returns the page of these tables by name; `caption` is the scale's."""
    return Page(
        "Tables, measured",
        [
            Paragraph(caption),
            Paragraph(_circumstances(_entries(ledger, results))),
            Paragraph(
                "Measured scores are medians over the seeds in per cent, with "
                "the range in brackets. A model whose masked-LM accuracy is "
                f"less than {100 * LEARNED_MARGIN:.0f} points above copying "
                "and guessing is counted as not comparable. A claim is tested "
                "by its difference in each seed (one-sided t-test): it shows "
                f"where p is below {_SIGNIFICANT}, and its opposite where p is "
                f"above {1 - _SIGNIFICANT}, without correction for the number "
                f"of claims{_expected_by_chance(results)}. All seeds share the "
                "held-out text, a twentieth of the documents, which of few "
                "files may be a single one."
            ),
        ],
        [
            _section(name, found, _place(name, found, caption, ledger))
            for name, found in results.items()
        ],
    )


def _place(
    name: str, results: TableResults, caption: str, ledger: Ledger
) -> str:
    """Returns scale and machine for every caption, since figures go alone."""
    scale = caption.partition(". ")[0].rstrip(".")
    if any(row.own for row in results.table.rows):
        scale = "Each row has settings of its own (results.jsonl)"
    computers = _computers(_entries(ledger, {name: results}))
    return f"{'; '.join(filter(None, (scale, computers)))}."


def _expected_by_chance(results: Mapping[str, TableResults]) -> str:
    """Returns the verdicts expected by chance; "" if none has a p."""
    number = sum(
        not math.isnan(finding.p_value) and not finding.problem
        for found in results.values()
        for finding in found.findings()
    )
    if not number:
        return ""
    expected = 2 * _SIGNIFICANT * number
    return (
        f" ({number} have a p; of as many without any effect {expected:.1f} "
        "would show, or their opposites)"
    )


def _computers(entries: Sequence[Mapping[str, Any]]) -> str:
    """Returns the processors of the jobs; empty before any has ended."""
    if not entries:
        return ""
    processors = sorted({entry["processor"] for entry in entries})
    # Earlier versions have no flags.
    cores = sorted(set(map(_cores, entries)))
    flags = sorted({" ".join(e.get("pretrain_flags", [])) for e in entries})
    number = "one core" if cores == [1] else f"{cores[-1]} cores at most"
    return (
        f"{', '.join(processors)}, every model on {number}"
        f"{''.join(f', some with {f}' for f in filter(None, flags))}"
    )


def _cores(entry: Mapping[str, Any]) -> int:
    # Earlier versions have one core for each job.
    return entry.get("cores") or 1


def _entries(
    ledger: Ledger, results: Mapping[str, TableResults]
) -> list[dict[str, Any]]:
    """Returns the ledger's entries of the tables' units, in its order."""
    cells = [cell for found in results.values() for cell in found.cells]
    units = in_order([unit for cell in cells for unit in cell.units])
    names = {unit.name for unit in units}
    return [entry for entry in ledger.entries() if entry["unit"] in names]


def _circumstances(entries: Sequence[Mapping[str, Any]]) -> str:
    """Returns the processors, hours and versions of the tables' units."""
    if not entries:
        return "Nothing has been computed yet."
    hours = sum(e["seconds"] * _cores(e) for e in entries) / 3600
    versions: dict[str, dict[str, None]] = {}
    for entry in entries:
        for name, version in entry["versions"].items():
            versions.setdefault(name, {})[version] = None
    used = [f"{name} {' and '.join(own)}" for name, own in versions.items()]
    return (
        f"Computed on {_computers(entries)}, beside other work, so that "
        "minutes and rates are no measurement: "
        f"{hours:.1f} hours of a core in all, in which of a job that was "
        f"killed only the last part counts. Versions: {', '.join(used)}."
    )


def _section(name: str, results: TableResults, place: str) -> Section:
    parts: list[Part] = [_numbers(results), *_rates_of_tasks(results)]
    if results.table.note:
        parts.append(Paragraph(results.table.note))
    if findings := results.findings():
        parts.append(_claims(findings))
    parts += _untested(results)
    parts += _leads(results)
    parts += _early_exits(results)
    parts += drawn(name, results)
    placed = [
        dataclasses.replace(part, caption=f"{part.caption} {place}")
        if isinstance(part, Figure | Table)
        else part
        for part in parts
    ]
    if any(row.published for row in results.rows):
        placed.insert(1, _published(results))
    return Section(f"{results.table.title} (--table={name})", placed)


def _numbers(results: TableResults) -> Table:
    columns = results.columns
    header = ["row", "parameters"]
    has_rates = bool(results.table.throughput_unit)
    if results.table.trained:
        named = [f"{c} {results.metric(c)}".rstrip() for c in columns]
        rates = ["sequences per second", RELATIVE_THROUGHPUT] * has_rates
        # The scores mean little without the seeds, and a page is not as wide.
        header = ["row", "seeds", "parameters", "minutes", *rates, *named]
    content = []
    for row in results.rows:
        parameters = f"{results.parameters(row.name):,}"
        if not results.table.trained:
            content.append([row.name, parameters])
            continue
        speeds = [
            _rate(results.pretraining(row.name)),
            _relative_rate(results, row.name),
        ]
        content.append(
            [
                *(row.name, _state(results, row.name), parameters),
                _minutes(results.minutes(row.name)),
                *speeds * has_rates,
                *(_score(results, row.name, column) for column in columns),
            ]
        )
    content += _simple_models(results, len(header))
    return Table(header, content, _measured(results))


def _score(results: TableResults, name: str, column: str) -> str:
    """Returns a row's median, and the number of seeds that have none."""
    text = _median(results.values(name, column), column)
    if missing := results.undefined(name, column):
        text += f"{', ' * bool(text)}not defined in {missing}"
    return text


def _simple_models(results: TableResults, width: int) -> list[list[str]]:
    """Returns the row of the tasks' simple models, if any is recorded."""
    found = [results.baseline(column) for column in results.columns]
    titles = {simple[0] for simple in found if simple}
    if not titles:
        return []
    title = titles.pop() if len(titles) == 1 else "simple model of the task"
    scores = [_median([simple[1]], "") if simple else "" for simple in found]
    return [[title, *[""] * (width - len(scores) - 1), *scores]]


def _measured(results: TableResults) -> str:
    if not results.table.trained:
        return "As measured."
    return (
        "As measured; minutes are those of pretraining, medians, beside other "
        "work (empty: the jobs were killed, and their last parts alone are "
        "recorded)."
    )


def _rates_of_tasks(results: TableResults) -> list[Part]:
    """Returns a line for a task whose rows had several learning rates."""
    parts: list[Part] = []
    for column in results.columns:
        rates = results.rates(column)
        if len(rates) > 1:
            texts = [f"{r:g} ({', '.join(n)})" for r, n in rates.items()]
            parts.append(
                Paragraph(
                    f"The rates of fine-tuning on {column} differ, and claims "
                    "are tested where a seed has one for all rows: "
                    f"{'; '.join(texts)}."
                )
            )
    return parts


def _minutes(found: Sequence[float]) -> str:
    return f"{np.median(found):.0f}" if found else ""


def _rate(found: Sequence[Figures]) -> str:
    if not found:
        return ""
    return f"{_median_rate(found):.0f}"


def _relative_rate(results: TableResults, name: str) -> str:
    """Returns a row's rate, in rates of the row that is the table's unit."""
    found = results.pretraining(name)
    unit = results.pretraining(results.table.throughput_unit)
    if not (found and unit):
        return ""
    return f"{_median_rate(found) / _median_rate(unit):.2f}"


def _median_rate(found: Sequence[Figures]) -> float:
    return float(np.median([one["sequences_per_second"] for one in found]))


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
            ""
            if math.isnan(found.p_value) or found.problem
            else f"{found.p_value:.3f}",
            verdict(found),
        ]
        for found in findings
    ]
    header = ["claim", "scores", "points", "seeds that agree", "p", "verdict"]
    return Table(header, rows, "Claims on these scores, above 0 for them.")


def _untested(results: TableResults) -> list[Part]:
    """Returns a line for each claim, and reason, that no seed tests."""
    return [
        Paragraph(
            f"{found.claim.text} Not tested"
            f"{' on ' * bool(found.columns)}{', '.join(found.columns)}: "
            f"{found.reason}."
        )
        for found in results.untested()
    ]


def _difference(finding: Finding) -> str:
    if is_loss(finding.column):
        return f"{finding.mean:+.3f} nats"
    return f"{100 * finding.mean:+.2f}"


def verdict(finding: Finding) -> str:
    """Returns in words what the seeds say of a claim."""
    if finding.problem:
        return finding.problem
    if len(finding.differences) < 2:
        return "one seed cannot tell"
    if math.isnan(finding.p_value):
        return "all seeds differ by the same, which gives no test"
    if finding.p_value < _SIGNIFICANT:
        return "shows"
    if finding.p_value > 1 - _SIGNIFICANT:
        return "the opposite shows"
    return "cannot be told"


def _published(results: TableResults) -> Table:
    """Returns the paper's own scores, where it prints them."""
    columns = [
        column
        for column in PUBLISHED_COLUMNS
        if any(column in row.published for row in results.rows)
    ]
    content = [
        [row.name, *(row.published.get(c, "") for c in columns)]
        for row in results.rows
    ]
    caption = (
        "As published: models of the paper's sizes, trained on Wikipedia and "
        "BookCorpus on TPUs (Tables 3 to 5 for 125,000 steps of 4,096 "
        "sequences of 512 tokens); scores of dev sets."
    )
    return Table(["row", *columns], content, caption)


def _leads(results: TableResults) -> list[Part]:
    """Returns the leads of rows over others of the same arithmetic."""
    content = []
    compared = MASKED_LM in results.columns
    for row in (row for row in results.rows if row.equal_work and compared):
        first, second = map(results.curves, (row.equal_work, row.name))
        seeds = first.keys() & second.keys()
        for work, label in WORK.items() if seeds else ():
            leads = [lead(first[s], second[s], work) for s in seeds]
            shares, least, last = zip(*leads, strict=True)
            leader = [row.equal_work, row.name, label, _reached(shares)]
            medians = [f"{np.median(nats):+.3f}" for nats in (least, last)]
            content.append([*leader, *medians])
    if not content:
        return []
    header = ["row", "against", "at equal", "best loss reached after"]
    caption = (
        "Masked-LM loss at equal work, medians over the seeds: the share of "
        "the other's work after which a row has its best loss, and how many "
        "nats it is below, at the least and at the end."
    )
    return [Table([*header, "least lead", "last lead"], content, caption)]


def _reached(shares: Sequence[float]) -> str:
    """Returns the median of finite shares, and of how many seeds it is."""
    finite = [share for share in shares if math.isfinite(share)]
    if not finite:
        return "never"
    some = f" ({len(finite)} of {len(shares)} seeds)"
    return f"{np.median(finite):.0%}{some * (len(finite) < len(shares))}"


def _early_exits(results: TableResults) -> list[Part]:
    """Returns the accuracies of early exit, and a count of its gains."""
    content, gained = [], []
    for answers, output in _EXITS.items():
        gains = []
        for row in results.rows:
            measured = results.measured(row.name, "any_depth")
            found = [one["early_exit"][output] for one in measured]
            if not found:
                continue
            gains += [o["accuracy"] - o["fixed_accuracy"] for o in found]
            mean = np.median([one["applications"] for one in found])
            content.append(
                [
                    row.name,
                    answers,
                    f"{mean:.1f} of {found[0]['most_applications']}",
                    *(
                        _median([one[name] for one in found], name)
                        for name in _EXIT_COLUMNS
                    ),
                ]
            )
        better = sum(gain > 0 for gain in gains)
        gained.append(f"{answers} in {better} of {len(gains)} models")
    if not content:
        return []
    header = ["row", "answers", "applications", *_EXIT_COLUMNS.values()]
    summary = (
        "Early exit is more accurate than a fixed depth of as much arithmetic "
        f"for {', for '.join(gained)}."
    )
    return [Table(header, content, _EXIT_CAPTION), Paragraph(summary)]
