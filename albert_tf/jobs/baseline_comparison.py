"""A fine-tuned model beside the simple model of its task, in words."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import ModelConfig, shown_metric
from albert_tf.rundir.run_results import is_better
from albert_tf.tasks.base import Task
from albert_tf.tasks.baselines.table import baseline_of
from albert_tf.tasks.kinds.base import ScoredExamples, guess_of
from albert_tf.tasks.metrics.bootstrap import paired_interval
from albert_tf.tasks.recipes import PAPER_WIDTH

# A model whose accuracy is no better than this above that of always predicting
# the most frequent class is not learning.
_MARGIN_ABOVE_GUESSING = 0.02


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A metric of a model and of a simple one on the same examples.

    `better_by` is the difference, positive where the model is the better one,
    `low` and `high` its 95 % interval, NaN where there is none.
    """

    metric: str
    title: str
    examples: int
    model: float
    baseline: float
    better_by: float
    low: float
    high: float

    @property
    def is_better(self) -> bool | None:
        """Whether the model is the better one; None: cannot be told."""
        if math.isnan(self.better_by):
            return None
        low, high = self.low, self.high
        if math.isnan(low):
            low = high = self.better_by
        if low > 0:
            return True
        # A metric that is not defined is that of a constant prediction.
        return None if low <= 0 <= high else False

    def sentence(self) -> str:
        """Returns the comparison in words."""
        shown = self._shown
        if math.isnan(self.better_by):
            sides = {"the model": self.model, self.title: self.baseline}
            has = " and ".join(
                f"{side} has {'none' if math.isnan(value) else shown(value)}"
                for side, value in sides.items()
            )
            return (
                f"{self.metric} is not defined for answers, or labels, that "
                f"are all alike: {has} ({self.examples} examples)."
            )
        start = f"{self.metric} {shown(self.model)}"
        rest = f"{self.title} ({shown(self.baseline)}; "
        sign = -1 if self.is_better is False else 1
        low, high = sorted((sign * self.low, sign * self.high))
        interval = f"{self._number(low)} to {self._number(high)}"
        if math.isnan(low):
            interval = "not known"
        if self.is_better is None:
            start += " cannot be told apart from"
            rest += "95% interval of the difference "
        else:
            points = " points" if self._in_percent else ""
            start += f" is {self._number(sign * self.better_by)}{points}"
            start += " better than" if self.is_better else " worse than"
            rest += "95% interval "
        return f"{start} {rest}{interval}, {self.examples} examples)."

    @property
    def _in_percent(self) -> bool:
        return "accuracy" in self.metric.split("_")

    def _shown(self, value: float) -> str:
        return self._number(value) + ("%" if self._in_percent else "")

    def _number(self, value: float) -> str:
        if self._in_percent:
            return f"{100 * value:.1f}"
        if "error" in self.metric.split("_"):
            return shown_metric(value)
        # The metrics of SQuAD are in percent.
        return f"{value:.1f}" if self.baseline >= 2 else f"{value:.3f}"


def compare_with_baseline(
    task: Task,
    scored: Mapping[str, ScoredExamples],
    simple: Mapping[str, ScoredExamples],
    *,
    metric: str,
    model: ModelConfig,
) -> dict[str, Any]:
    """Returns a model beside the simple model of its task, in words.

    Args:
        task: a row of the catalog, or a custom task.
        scored: the model's scores by the suffix of their metrics' names.
        simple: the simple model's, of the same examples; empty: there is none.
        metric: to compare; the first of the kind in place of others.
        model: the architecture, on which the advice depends.

    Returns:
        `metrics` of the simple model by their names, `comparisons`, and
        `verdict`, sentences for the user.
    """
    metrics: dict[str, float] = {}
    comparisons: list[Comparison] = []
    warnings = []
    for suffix, of_model in scored.items():
        found = task.kind.compute_metrics(of_model, task.metrics)
        names = task.kind.metric_names(task.metrics, of_model.labels)
        stem = metric.removesuffix(suffix)
        name = stem if stem in names else names[0]
        if guess := no_better_than_guessing(found, name):
            warnings.append(f"WARNING: {guess}.")
        if (
            found.get("majority_class_accuracy") == 1.0
            or found.get("mean_guess_mean_squared_error") == 0.0
        ):
            warnings.append(
                "WARNING: all of these examples have one label: they do not "
                "measure whether it is distinguished from others."
            )
        warnings += _others_below_guessing(found, name)
        if suffix not in simple:
            continue
        baseline = baseline_of(task.kind)
        sides = of_model, simple[suffix]
        of_simple = task.kind.compute_metrics(simple[suffix], task.metrics)
        metrics |= {
            f"{baseline.prefix}{known}{suffix}": of_simple[known]
            for known in names
            # Thresholds that are chosen on these very examples.
            if not known.startswith("best_")
        }
        values = found[name], of_simple[name]
        comparison = _compared(task, name, baseline.title, sides, values)
        comparisons.append(
            dataclasses.replace(comparison, metric=f"{name}{suffix}")
        )
    sentences = [comparison.sentence() for comparison in comparisons]
    return {
        "metrics": metrics,
        "comparisons": [dataclasses.asdict(each) for each in comparisons],
        "verdict": [*warnings, *sentences, *_advice(comparisons, model)],
    }


def _compared(
    task: Task,
    name: str,
    title: str,
    sides: tuple[ScoredExamples, ScoredExamples],
    values: tuple[float, float],
) -> Comparison:
    """Returns the model and the simple model, in this order, compared."""
    first, second = (
        task.kind.sampled_metric(side, task.metrics, name) for side in sides
    )
    count = len(sides[0].examples)
    sign = 1 if is_better(name, 1.0, 0.0) else -1
    low = high = math.nan
    if first and second:
        interval = paired_interval(first, second, count)
        low, high = sorted(sign * end for end in interval)
    return Comparison(
        metric=name,
        title=title,
        examples=count,
        model=values[0],
        baseline=values[1],
        better_by=sign * (values[0] - values[1]),
        low=low,
        high=high,
    )


def _advice(comparisons: Sequence[Comparison], model: ModelConfig) -> list[str]:
    """Returns advice, unless the model is better than the simple one.

    A model without an error needs none.
    """
    if all(each.is_better or each.model == 1.0 for each in comparisons):
        return []
    if model.hidden_size < PAPER_WIDTH:
        return [
            "To try: more pretraining, on the task's own text too; a larger "
            "--preset; or released weights "
            "(--init_from=hf://albert/albert-base-v2)."
        ]
    return [
        "To try: another --learning_rate, more epochs (--num_train_epochs), "
        "other seeds (--num_runs) and, unless these are released weights, more "
        "pretraining."
    ]


def _others_below_guessing(
    metrics: Mapping[str, float], compared: str
) -> list[str]:
    """Returns a warning of each other metric that guessing exceeds."""
    guesses = {name: f"majority_class_{name}" for name in metrics}
    return [
        f"WARNING: {name} is {metrics[name]:.4g}, less than always predicting "
        f"{guess_of(metrics)} has ({metrics[guess]:.4g})."
        for name, guess in guesses.items()
        if name != compared and metrics[name] < metrics.get(guess, -math.inf)
    ]


def margin_above(baseline: float, best: float = 1.0) -> float:
    """Returns the margin above guessing from which a model has learned.

    Less where guessing is nearly `best`: a model without an error has learned.
    """
    return _MARGIN_ABOVE_GUESSING * min(best, 2 * (best - baseline))


def no_better_than_guessing(
    metrics: Mapping[str, float], best_metric: str
) -> str:
    """Returns a comparison with the same answer for all; "" if better.

    A metric of up to `margin_above` it is not.
    """
    squared_error = "mean_squared_error"
    for name, prefix, guess in (
        (best_metric, "majority_class_", guess_of(metrics)),
        (squared_error, "mean_guess_", "the mean"),
    ):
        baseline = metrics.get(f"{prefix}{name}")
        if name == "f1" and "majority_class_accuracy" in metrics:
            # The most frequent tag of entities is O.
            baseline = baseline or 0.0
        if baseline is None:
            continue
        value = metrics[name]
        perfect = {"accuracy": 1.0, squared_error: 0.0}.get(name)
        if baseline == perfect and (value == perfect or name == squared_error):
            # All labels are alike: nothing could be better.
            continue
        if name == squared_error:
            better, degree = value < baseline, "no"
        else:
            # The metrics of SQuAD are in percent.
            best = 100.0 if "majority_class_exact" in metrics else 1.0
            better = value > baseline + margin_above(baseline, best)
            degree = "hardly" if value > baseline else "no"
        if not better:
            return (
                f"{name} is {value:.4g}, and always predicting {guess} has "
                f"{baseline:.4g}: {degree} better than guessing"
            )
    return ""
