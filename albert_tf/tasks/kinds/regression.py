"""Regression of single texts and pairs."""

from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.config import FeatureConfig, require
from albert_tf.tasks.bad_rows import made_of_all
from albert_tf.tasks.examples import Example
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.base import (
    CallSignature,
    Distributions,
    LabelScaling,
    Metric,
    Outputs,
    Prediction,
    SampledMetric,
    ScoredExamples,
    metric_of_sample,
    metric_values,
)
from albert_tf.tasks.kinds.texts import TextKind, text_fields
from albert_tf.tasks.number_labels import number_of

# Bounds of means and deviations that need no scaling; STS-B has 2.7 and 1.5.
_LARGE, _SMALL = 10.0, 0.1
# The deviation in means below which float32 has less than two digits of it.
_COARSE = 100 * float(np.finfo(np.float32).eps)


class Regression(TextKind):
    """A number."""

    name = "regression"
    head = "regression"
    label_type = np.float32
    extra_metrics = ("mean_squared_error", "mean_absolute_error")
    exported = ("text", "predictions")

    def label_ids(
        self, examples: Sequence[Example], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns the numbers, float64 `[examples]`, 0 without a label."""

        def number(example: Example) -> float:
            if example.label is None:
                return 0.0
            return number_of(example.label, example.location)

        return np.array(made_of_all(number, examples))

    def label_scaling(self, examples: Sequence[Example]) -> LabelScaling:
        """Returns the mean, and of numbers of another scale the deviation.

        A model starts at the mean, since from 0 it would spend its first steps,
        of few rows most of them, on the way there; it moves in small steps,
        which suit numbers of the paper's tasks. Raises UserError where all are
        equal, or nearly so for their size.
        """
        numbers = self.label_ids(examples, ())
        mean, deviation = float(numbers.mean()), float(numbers.std())
        low, high = numbers.min(), numbers.max()
        place = f"{examples[0].location} and what follows"
        require(
            low < high,
            f"{place}: the training examples have one number only, {low:.6g}; "
            "regression needs at least two.",
        )
        require(
            deviation > _COARSE * abs(mean),
            f"{place}: the numbers, from {low:.12g} to {high:.12g}, differ too "
            "little for their size: a model's are float32. Subtract one number "
            f"from all of them, such as {mean:.12g}.",
        )
        if abs(mean) <= _LARGE and _SMALL <= deviation <= _LARGE:
            return LabelScaling(mean)
        return LabelScaling(mean, deviation)

    def scores(
        self, features: Features, outputs: Outputs, config: FeatureConfig
    ) -> list[float]:
        """Returns the number of each example."""
        return [float(value) for value in outputs["predictions"]]

    def exported_scores(
        self, call: CallSignature, examples: Sequence[Example]
    ) -> list[float]:
        """Returns the number of each example from an exported model."""
        rows = self.exported_rows(call, examples)
        return [float(row["predictions"]) for row in rows]

    def compute_metrics(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the metrics, the model's errors and those of a guess.

        `mean_guess_mean_squared_error` and so on are those of always predicting
        the mean of these examples.
        """
        gold = self.label_ids(scored.examples, ())
        predicted = np.array(scored.scores)
        found = metric_values({**metrics, **_ERRORS}, gold, predicted)
        # The mean of equal numbers may be another one, by rounding.
        mean = np.clip(gold.mean(), gold.min(), gold.max())
        of_mean = metric_values(_ERRORS, gold, np.full_like(gold, mean))
        return found | {f"mean_guess_{n}": v for n, v in of_mean.items()}

    def sampled_metric(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric], name: str
    ) -> SampledMetric | None:
        """Returns a metric as a function of the numbers of examples."""
        gold = self.label_ids(scored.examples, ())
        every = {**metrics, **_ERRORS}
        return metric_of_sample(every, name, gold, np.array(scored.scores))

    def _prediction(
        self, example: Example, scores: float, scored: ScoredExamples
    ) -> Prediction:
        error, label = 0.0, None
        if example.label is not None:
            label = float(example.label)
            error = abs(scores - label)
        fields = {
            **text_fields(example.texts),
            "label": label,
            "prediction": scores,
        }
        return Prediction(fields, example.location, error)

    def figure(self, scored: ScoredExamples) -> Distributions:
        """Returns the gold and the predicted numbers."""
        gold = self.label_ids(scored.examples, ())
        return Distributions(
            "number", {"labels": gold, "answers": np.array(scored.scores)}
        )

    def constant_prediction(self, scored: ScoredExamples) -> str | None:
        """Returns the number that all examples are given.

        Numbers count as one that differ by less than a hundredth of what the
        gold ones do.
        """
        given = np.array(scored.scores)
        gold = self.label_ids(scored.examples, ())
        if len(given) < 2 or np.ptp(given) > np.ptp(gold) / 100:
            return None
        return f"{given.mean():.6g}"


def _mean_squared_error(gold: np.ndarray, predicted: np.ndarray) -> float:
    return float(np.mean(np.square(predicted - gold)))


def _mean_absolute_error(gold: np.ndarray, predicted: np.ndarray) -> float:
    return float(np.mean(np.abs(predicted - gold)))


_ERRORS = {
    "mean_squared_error": _mean_squared_error,
    "mean_absolute_error": _mean_absolute_error,
}
