"""The report of a fine-tuning run."""

import dataclasses
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import FeatureConfig, shown_metric
from albert_tf.prediction.predictor import Predictor
from albert_tf.report.calibration import calibrated, calibration_section
from albert_tf.report.data_section import data_section
from albert_tf.report.figures import draw, draw_scatter, is_wide
from albert_tf.report.mistakes import mistakes_section, worst_and_right
from albert_tf.report.occlusion import Occluded, occluded, value_of
from albert_tf.report.page import (
    Figure,
    MarkedText,
    Page,
    Paragraph,
    Part,
    Section,
    Table,
    without_empty_columns,
)
from albert_tf.report.run_sections import (
    curves,
    machine_section,
    settings_section,
)
from albert_tf.rundir.run_directory import recorded_run
from albert_tf.rundir.run_results import read_comparison, result
from albert_tf.tasks.base import Task
from albert_tf.tasks.baselines.table import baseline_of
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.base import Prediction, ScoredExamples, guess_of
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.metrics.bootstrap import paired_interval

# Examples whose words are left out: half of them mistakes.
_NUM_OCCLUDED = 20
_MAX_WORDS = 60
# An example with its variants.
PREDICTION_BATCH = _MAX_WORDS + 1
_MAX_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class FinetunedRun:
    """What the report of a run reads beside its directory.

    Attributes:
        examples: of each split, "train" among them.
        features: theirs.
        scored: the held-out examples by the suffix of their metrics' names,
            as in the run's evaluations: without the model's temperature and
            thresholds.
        predictor: of the run's model.
        notes: the command and the like.
    """

    run_dir: str
    task: Task
    examples: Mapping[str, Sequence[Any]]
    features: Mapping[str, Features]
    scored: Mapping[str, ScoredExamples]
    predictor: Predictor
    notes: Sequence[str] = ()

    @property
    def dev(self) -> ScoredExamples:
        """The first of the held-out splits."""
        first, *_ = self.scored.values()
        return first


def finetuning_page(run: FinetunedRun) -> Page:
    """Returns the report."""
    begin = time.monotonic()
    dev = as_predicted(run.dev, run.predictor.loaded.features)
    temperature = dev.config.temperature
    predictions = run.task.kind.predictions(dev)
    metric = recorded_run(run.run_dir)["config"]["training"]["best_metric"]
    sections = [
        Section("Training", list(_training_curves(run, metric))),
        _answers_section(run, dev),
        *calibration_section(run.task.kind, run.dev, temperature),
        mistakes_section(predictions),
        *_words_section(run, predictions, begin),
        data_section(
            run.task.kind,
            run.examples,
            run.features,
            run.predictor.loaded.tokenizer,
        ),
        settings_section(run.run_dir),
        machine_section(run.notes),
    ]
    name = os.path.basename(os.path.normpath(run.run_dir))
    title = f"{name}: fine-tuning on {run.task.name}"
    return Page(title, _introduction(run, metric), sections)


def as_predicted(
    scored: ScoredExamples, features: FeatureConfig
) -> ScoredExamples:
    """Returns the examples as a model with these settings answers them."""
    found = calibrated(scored, features.temperature)
    return dataclasses.replace(found, config=features)


def _introduction(run: FinetunedRun, metric: str) -> list[Part]:
    evaluation = result(run.run_dir)
    simple, verdict = read_comparison(run.run_dir)
    config = run.predictor.loaded.model.config
    parameters = run.predictor.loaded.model.count_params()
    model = (
        f"{run.run_dir}, the model of step {evaluation['step']}: "
        f"{config.num_hidden_layers} layers of width {config.hidden_size}, "
        f"{parameters / 1e6:.3g} million parameters."
    )
    return [
        Paragraph(headline(run, metric, evaluation)),
        *map(Paragraph, verdict),
        _results_table(run, evaluation, simple),
        Paragraph(model),
    ]


def headline(
    run: FinetunedRun, metric: str, evaluation: Mapping[str, Any]
) -> str:
    """Returns the metric that chose the model, with its interval."""
    # The metrics of MNLI's second split end in _mismatched.
    suffix = max(filter(metric.endswith, run.scored), key=len)
    scored, name = run.scored[suffix], metric.removesuffix(suffix)
    count = len(scored.examples)
    shown = _shown(metric, evaluation[metric]) or "not defined"
    text = f"{metric} {shown} on {count:,} dev examples"
    kind, metrics, sampled = run.task.kind, run.task.metrics, None
    if name in kind.metric_names(metrics, scored.labels):
        sampled = kind.sampled_metric(scored, metrics, name)
    if sampled is None:
        return f"{text}."
    low, high = paired_interval(sampled, lambda rows: 0.0, count)
    if math.isnan(low):
        return f"{text}."
    ends = f"{_shown(metric, low)} to {_shown(metric, high)}"
    return f"{text} (95% bootstrap interval {ends})."


def _results_table(
    run: FinetunedRun,
    evaluation: Mapping[str, Any],
    simple: Mapping[str, float],
) -> Table:
    kind, baseline = run.task.kind, baseline_of(run.task.kind)
    names = [
        f"{name}{suffix}"
        for suffix in run.scored
        for name in kind.metric_names(run.task.metrics, run.dev.labels)
    ]
    rows = []
    for name in names:
        guess = evaluation.get(f"majority_class_{name}")
        if guess is None:
            guess = evaluation.get(f"mean_guess_{name}")
        other = simple.get(f"{baseline.prefix}{name}") if baseline else None
        values = evaluation.get(name), other, guess
        rows.append([name, *(_shown(name, value) for value in values)])
    title = baseline.title if baseline else "simple model"
    caption = f"same answer: {guess_of(evaluation)} for all."
    table = Table(["on dev", "model", title, "same answer"], rows, caption)
    return without_empty_columns(table)


def _training_curves(run: FinetunedRun, metric: str) -> Iterator[Part]:
    groups = {"Loss": ["loss"], metric.capitalize(): [metric]}
    return curves(run.run_dir, groups | {"Learning rate": ["learning_rate"]})


def _answers_section(run: FinetunedRun, dev: ScoredExamples) -> Section:
    """Returns right and wrong answers: a figure, and metrics by label."""
    kind = run.task.kind
    if isinstance(kind, Regression):
        gold = kind.label_ids(dev.examples, ())
        png = draw_scatter(gold, np.array(dev.scores))
        caption = "Answers over labels of the dev examples."
        width = 28
    else:
        figure = kind.figure(dev)
        png = draw(figure, "dev")
        caption = "Right and wrong answers to the dev examples."
        width = 46 if is_wide(figure) else 28
    parts: list[Part] = [Figure(png, caption, "answers.png", width)]
    if _thresholds(dev) != _thresholds(run.dev):
        parts.append(
            Paragraph(
                "Answers and mistakes here are those by the threshold in the "
                "model's task.json, which was chosen on these very examples; "
                "the metrics above are without it."
            )
        )
    if table := kind.table(dev):
        parts.append(Table(table.header, table.rows))
    return Section("Answers", parts)


def _thresholds(scored: ScoredExamples) -> tuple[str, float]:
    return scored.config.label_thresholds, scored.config.null_threshold


def _words_section(
    run: FinetunedRun, predictions: Sequence[Prediction], begin: float
) -> list[Section]:
    """Returns the effect of words; `begin` is when the report began."""
    value = value_of(run.task.kind)
    if value is None:
        return []
    started = time.monotonic()
    numbers = worst_and_right(predictions, _NUM_OCCLUDED)
    found = list(
        occluded(
            [run.dev.examples[number] for number in numbers],
            lambda some: list(run.predictor.predict(run.task.kind, some)),
            value,
            max_words=_MAX_WORDS,
            max_seconds=_MAX_SECONDS,
        )
    )
    now = time.monotonic()
    parts: list[Part] = [
        Paragraph(
            "Each word is left out in turn: blue ones speak for the answer, "
            "red ones against it, by the change of its probability (or of the "
            f"number). {len(found)} of {len(numbers)} examples, mistakes and "
            f"right answers in turn, with up to {_MAX_WORDS} words each, took "
            f"{now - started:.1f} of the {now - begin:.1f} seconds so far."
        )
    ]
    for each in found:
        parts += _effects(each)
    return [Section("Words that decided", parts)]


def _effects(found: Occluded) -> list[Part]:
    """Returns the words of an example, marked by their effect."""
    fields = found.prediction.fields
    effects = [abs(effect) for text in found.texts for _, effect in text]
    largest = max([*effects, 1e-9])
    title = Paragraph(
        f"{os.path.basename(found.prediction.location)}: label "
        f"{fields['label']}, answer {_answer(fields)}; the largest effect of "
        f"a word is {largest:.3g}."
    )
    marked = ([(w, e / largest) for w, e in text] for text in found.texts)
    return [title, *map(MarkedText, marked)]


def _answer(fields: Mapping[str, Any]) -> str:
    answer = fields["prediction"]
    if "probabilities" in fields:
        return f"{answer} ({fields['probabilities'][answer]:.1%})"
    return f"{answer:.5g}"


def _shown(metric: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1%}" if "accuracy" in metric else shown_metric(value)
