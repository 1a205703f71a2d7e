"""What a ledger holds of a table: scores, and what becomes of claims."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.modeling.accounting import with_pretraining_heads
from albert_tf.tasks.baselines.table import baseline_of
from albert_tf.tasks.catalog import TASKS as CATALOG
from albert_tf.tasks.kinds.base import Kind
from albert_tf.tasks.kinds.question_answering import Spans
from experiments.curves import Curve, curve
from experiments.ledger import DIVERGED, FINISHED, Ledger
from experiments.plan import Cell
from experiments.tables import RANDOM_SEGMENTS, TEXTS, Claim, Row, Table
from experiments.units import Figures, Unit, pretraining_config

MASKED_LM = "masked-LM accuracy"
# Columns of the sentence objectives, and the accuracy of one answer for all, by
# their metric.
OBJECTIVES = {
    "sentence_order_accuracy": ("SOP accuracy", "majority_order_accuracy"),
    "next_sentence_accuracy": (
        "NSP accuracy",
        "majority_next_sentence_accuracy",
    ),
}
# Measurements on a text, behind its name; a lower loss is better.
NATS = "nats per word"
WORDS = {
    "word_accuracy": "word accuracy",
    "word_loss": NATS,
    "sentence_order_accuracy": "SOP accuracy",
}
TASKS = "mean of the tasks"
# The distance of a model that has learned from copying and guessing.
LEARNED_MARGIN = 0.05
# Recorded seconds of a whole pretraining, over those that its sequences take at
# its median rate; less is the last part of one that was killed.
_WHOLE = 0.8
# A tenth of the masked tokens stays what it was (paper, section 4.1).
_KEPT = 0.1
_MASKED = 0.8
_RATES_DIFFER = "rates of fine-tuning differ"


@dataclasses.dataclass(frozen=True)
class CellScores:
    """What was measured of a cell, by column; empty while it runs.

    Attributes:
        status: of its pretraining, as in the ledger; "": not ended.
        scores: by column, shares but for losses; NaN: not defined.
        learned: whether its masked-LM accuracy is that of a model that reads.
        rates: the learning rate of fine-tuning by task, where it is recorded.
    """

    status: str
    scores: Mapping[str, float]
    learned: bool
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)


def cell_scores(cell: Cell, ledger: Ledger) -> CellScores:
    """Returns the scores of a cell so far."""
    entry = ledger.entry(cell.pretraining)
    figures = ledger.figures(cell.pretraining)
    if entry is None or figures is None:
        return CellScores(entry["status"] if entry else "", {}, False)
    evaluation = figures["evaluation"]
    accuracy = evaluation["masked_lm_accuracy"]
    scores = {}
    # Rows on several texts were evaluated on one each in training.
    if not set(TEXTS) & set(cell.measures):
        scores = {MASKED_LM: accuracy, **_sentence_accuracy(evaluation)}
    for name, unit in cell.measures.items():
        found = ledger.figures(unit) or {}
        measured = _sentence_accuracy(found.get("evaluation", {}))
        scores |= {f"{c}{_segments(name)}": s for c, s in measured.items()}
        if name in TEXTS:
            scores |= {f"{name} {WORDS[m]}": found[m] for m in WORDS if found}
    tasks, rates = {}, {}
    for title, unit in cell.tasks.items():
        if found := ledger.figures(unit):
            score = found["evaluation"][found["metric"]]
            tasks[title] = _share(unit, score)
            rates[title] = found.get("learning_rate", math.nan)
    scores |= tasks
    if tasks and len(tasks) == len(cell.tasks):
        scores[TASKS] = float(np.mean(list(tasks.values())))
    guessing = _KEPT + _MASKED * evaluation["most_frequent_token_accuracy"]
    learned = accuracy > guessing + LEARNED_MARGIN
    return CellScores(entry["status"], scores, learned, rates)


def _task_kind(finetuning: Unit) -> Kind:
    return CATALOG[finetuning.settings["task"]].kind


def _share(finetuning: Unit, score: float | None) -> float:
    """Returns a score of a task as a share; NaN where it is not defined."""
    if score is None:
        return math.nan
    # The metrics of SQuAD are in per cent.
    return score / 100 if isinstance(_task_kind(finetuning), Spans) else score


def _sentence_accuracy(evaluation: Mapping[str, float]) -> dict[str, float]:
    """Returns the accuracies, where the text has more labels than one."""
    return {
        column: evaluation[metric]
        for metric, (column, baseline) in OBJECTIVES.items()
        if metric in evaluation and evaluation.get(baseline) != 1.0
    }


def _segments(measure: str) -> str:
    """Returns the origin of random segments, in words; "" for others."""
    if measure not in RANDOM_SEGMENTS:
        return ""
    return f" with {RANDOM_SEGMENTS[measure][0]}"


@dataclasses.dataclass(frozen=True)
class Finding:
    """A claim on one column.

    Attributes:
        differences: the claim's sum for each seed that has all its rows, and
            one rate of fine-tuning if any seed has.
        p_value: one-sided, of a t-test that the mean is 0 (equal seeds are
            pairs); NaN for fewer than two seeds, or without any variance.
        problem: why its rows cannot be compared; empty: they can.
    """

    claim: Claim
    column: str
    differences: Sequence[float]
    p_value: float
    problem: str = ""

    @property
    def mean(self) -> float:
        """The mean difference; NaN where no seed is complete."""
        return (
            float(np.mean(self.differences)) if self.differences else math.nan
        )

    @property
    def agreeing(self) -> int:
        """The number of seeds in which the claim holds."""
        return sum(difference > 0 for difference in self.differences)


class Untested(NamedTuple):
    """A claim that no seed can test: why, and on which columns; empty: all."""

    claim: Claim
    reason: str
    columns: Sequence[str]


@dataclasses.dataclass(frozen=True)
class TableResults:
    """The results of a table's cells so far."""

    table: Table
    cells: Sequence[Cell]
    ledger: Ledger

    @functools.cached_property
    def rows(self) -> list[Row]:
        """The rows that the scale has."""
        return list({c.row.name: c.row for c in self.cells}.values())

    @functools.cached_property
    def scores(self) -> dict[tuple[str, int], CellScores]:
        """The scores of each row and seed."""
        return {
            (cell.row.name, cell.seed): cell_scores(cell, self.ledger)
            for cell in self.cells
        }

    @functools.cached_property
    def columns(self) -> list[str]:
        """All columns that were measured: of tasks, and their mean, last."""
        found = {c: None for cell in self.scores.values() for c in cell.scores}
        tasks = {title: None for cell in self.cells for title in cell.tasks}
        if len(tasks) > 1:
            tasks[TASKS] = None
        others = [c for c in found if c not in tasks and c != TASKS]
        return others + [title for title in tasks if title in found]

    def parameters(self, name: str) -> int:
        """Returns the weights of a row's encoder."""
        cell = next(cell for cell in self.cells if cell.row.name == name)
        config = pretraining_config(cell.pretraining)
        return with_pretraining_heads(config.model).encoder

    def has_learned(self, name: str) -> bool:
        """Returns whether the models of all seeds have learned to read."""
        return all(cell.learned for cell in self.of_row(name) if cell.scores)

    def of_row(self, name: str) -> list[CellScores]:
        """Returns the scores of a row, a seed after the other."""
        return [found for (row, _), found in self.scores.items() if row == name]

    def values(self, name: str, column: str) -> list[float]:
        """Returns a row's scores in a column, of the seeds that have one."""
        found = [c.scores.get(column, math.nan) for c in self.of_row(name)]
        return [score for score in found if not math.isnan(score)]

    def undefined(self, name: str, column: str) -> int:
        """Returns the number of a row's seeds whose score is not defined."""
        found = [cell.scores for cell in self.of_row(name)]
        measured = sum(column in scores for scores in found)
        return measured - len(self.values(name, column))

    def pretraining(self, name: str) -> list[Figures]:
        """Returns the figures of a row's pretraining, seed by seed."""
        return self._figures(name, lambda cell: cell.pretraining)

    def minutes(self, name: str) -> list[float]:
        """Returns the minutes of each whole run of a row's pretraining."""
        found = []
        for cell in self.cells:
            entry = self.ledger.entry(cell.pretraining)
            if cell.row.name == name and entry and entry["status"] == FINISHED:
                training = pretraining_config(cell.pretraining).training
                sequences = training.num_train_steps * training.train_batch_size
                rate = entry["figures"]["sequences_per_second"]
                if entry["seconds"] > _WHOLE * sequences / rate:
                    found.append(entry["seconds"] / 60)
        return found

    def curves(self, name: str) -> dict[int, Curve]:
        """Returns the curve of a row's pretraining by seed."""
        return {
            cell.seed: curve(cell.pretraining, figures)
            for cell in self.cells
            if cell.row.name == name
            if (figures := self.ledger.figures(cell.pretraining))
        }

    def measured(self, name: str, measure: str) -> list[Figures]:
        """Returns what a measure found of a row, a seed after the other."""
        return self._figures(name, lambda cell: cell.measures.get(measure))

    def _figures(
        self, name: str, unit_of: Callable[[Cell], Unit | None]
    ) -> list[Figures]:
        units = [unit_of(cell) for cell in self.cells if cell.row.name == name]
        found = [self.ledger.figures(unit) for unit in units if unit]
        return [figures for figures in found if figures]

    def findings(self) -> list[Finding]:
        """Returns what the scores say of each claim, column by column.

        Rows that differ in their objective are not compared by it.
        """
        found = [
            self._examine(claim, column)
            for claim in self.table.claims
            for column in self._columns_of(claim)
        ]
        return [finding for finding in found if finding.differences]

    def untested(self) -> list[Untested]:
        """Returns the claims of which columns say nothing, by the reason.

        None of a claim none of whose rows has ended.
        """
        found = []
        for claim in self.table.claims:
            columns = self._columns_of(claim) or [""]
            reasons: dict[str, list[str]] = {}
            for column in columns:
                reason = self._reason(claim, column)
                if reason and not self._examine(claim, column).differences:
                    reasons.setdefault(reason, []).append(column)
            found += [
                Untested(claim, reason, [] if those == columns else those)
                for reason, those in reasons.items()
            ]
        return found

    def _columns_of(self, claim: Claim) -> list[str]:
        own = tuple(f"{m.upper()} accuracy" for m in self.table.measures)
        return [
            column
            for column in self.columns
            if not column.startswith(own) and _is_about(claim, column)
        ]

    def _reason(self, claim: Claim, column: str) -> str:
        """Returns why a claim has no seed with a score of all its rows.

        Empty before one of its rows has ended.
        """
        reasons, ended = [], False
        for name in claim.weights:
            cells = self.of_row(name)
            ended |= any(cell.status for cell in cells)
            diverged = sum(cell.status == DIVERGED for cell in cells)
            if diverged:
                reasons.append(
                    f"{name} diverged ({diverged} of {len(cells)} seeds)"
                )
            elif not self.values(name, column):
                reasons.append(f"{name} has no score")
        if not ended:
            return ""
        return " and ".join(reasons) or "no seed has a score of all rows"

    def _examine(self, claim: Claim, column: str) -> Finding:
        """Returns the claim's sum for every seed that has all its scores."""
        weights = list(claim.weights.values())
        sign = -1 if is_loss(column) else 1
        found: list[tuple[float, str]] = []
        for seed in dict.fromkeys(seed for _, seed in self.scores):
            cells = [self.scores.get((name, seed)) for name in claim.weights]
            present = [
                c
                for c in cells
                if c and not math.isnan(c.scores.get(column, math.nan))
            ]
            if len(present) == len(cells):
                scores = [cell.scores[column] for cell in present]
                difference = sign * float(np.dot(weights, scores))
                # The last bits of a float are no difference of seeds.
                found.append((round(difference, 9), _problem(present, column)))
        of_one_rate = [one for one in found if one[1] != _RATES_DIFFER]
        found = of_one_rate or found
        differences = [difference for difference, _ in found]
        return Finding(
            claim,
            column,
            differences,
            _p_value(differences),
            next((problem for _, problem in found if problem), ""),
        )

    def baseline(self, column: str) -> tuple[str, float] | None:
        """Returns the title of a task's simple model and its score, if any."""
        for unit in self._tasks(column):
            found = self.ledger.figures(unit)
            simple = baseline_of(_task_kind(unit))
            if found and simple:
                scores = found.get("baseline", {})
                score = scores.get(f"{simple.prefix}{found['metric']}")
                if score is not None:
                    return simple.title, _share(unit, score)
        return None

    def metric(self, column: str) -> str:
        """Returns the metric of a task's column; empty for other columns."""
        found = map(self.ledger.figures, self._tasks(column))
        return next((f["metric"] for f in found if f), "")

    def rates(self, column: str) -> dict[float, list[str]]:
        """Returns the rows of each learning rate of fine-tuning on a task."""
        rows: dict[float, list[str]] = {}
        for (name, _), cell in self.scores.items():
            rate = cell.rates.get(column, math.nan)
            if not math.isnan(rate) and name not in rows.setdefault(rate, []):
                rows[rate].append(name)
        return rows

    def _tasks(self, column: str) -> list[Unit]:
        """Returns the fine-tunings on a task; none for another column."""
        return [c.tasks[column] for c in self.cells if column in c.tasks]


def is_loss(column: str) -> bool:
    """Returns whether less is better, and scores are no shares."""
    return column.endswith(NATS)


def _problem(cells: Sequence[CellScores], column: str) -> str:
    """Returns why the scores of a seed's cells cannot be compared."""
    if not all(cell.learned for cell in cells):
        return "not comparable"
    for task in {task for cell in cells for task in cell.rates}:
        rates = {cell.rates.get(task, math.nan) for cell in cells}
        known = {rate for rate in rates if not math.isnan(rate)}
        if column in (task, TASKS) and len(known) > 1:
            return _RATES_DIFFER
    return ""


def _is_about(claim: Claim, column: str) -> bool:
    subject = column if column.partition(" ")[0] in TEXTS else "tasks"
    return not claim.about or subject.startswith(tuple(claim.about))


def _p_value(differences: Sequence[float]) -> float:
    if len(differences) < 2 or not np.ptp(differences):
        return math.nan
    # SciPy takes a second to import.
    from scipy import stats

    return float(
        stats.ttest_1samp(differences, 0.0, alternative="greater").pvalue
    )
