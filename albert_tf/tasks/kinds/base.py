"""The interface of a kind of task, and the values that it returns."""

import abc
import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from albert_tf.config import FeatureConfig, UserError, shown
from albert_tf.tasks.features import Features
from albert_tf.text.tokenizer_base import Tokenizer

Metric = Callable[[np.ndarray, np.ndarray], float]
# A metric of some of the examples, by their numbers, which may repeat.
SampledMetric = Callable[[np.ndarray], float]
# The outputs of a head by name: an array for each row of features.
Outputs = Mapping[str, Sequence[np.ndarray]]
# Calls a signature of an exported model: of its name and its inputs by name it
# returns the outputs by name.
CallSignature = Callable[..., Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A model's prediction for one example.

    `fields` are those of its line in predictions.jsonl. `error` is 0 for a
    right prediction or an unlabelled example; else the larger, the more
    confident the wrong prediction is.
    """

    fields: dict[str, Any]
    location: str
    error: float


@dataclasses.dataclass(frozen=True)
class ScoredExamples:
    """The scores of a model, or of an ensemble, for examples of one kind.

    `config` has the thresholds by which scores become predictions; `labels`
    are the model's.
    """

    examples: Sequence[Any]
    scores: Sequence[Any]
    config: FeatureConfig
    labels: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Table:
    """Metrics of each label, formatted."""

    header: list[str]
    rows: list[list[str]]


@dataclasses.dataclass(frozen=True)
class ConfusionMatrix:
    """Counts of predicted labels for gold ones, `[gold, predicted]`."""

    labels: list[str]
    counts: np.ndarray


@dataclasses.dataclass(frozen=True)
class Distributions:
    """Histograms of a quantity, `measure`, one for each group of examples.

    `groups` are its values, `[examples of the group]`, by the group's name.
    """

    measure: str
    groups: dict[str, np.ndarray]


Figure = ConfusionMatrix | Distributions


class LabelScaling(NamedTuple):
    """The mean that is subtracted from numbers, and the deviation as unit."""

    mean: float = 0.0
    deviation: float = 1.0


class Kind(abc.ABC):
    """Turns examples into a head's inputs, and its outputs into predictions.

    Attributes:
        name: for messages.
        head: the row of modeling.heads.HEADS.
        labelled: whether the model has class names.
        without_label: an example that has none, for messages.
        example_type: the class of its examples.
        text_counts: numbers of texts that make an example.
        text_format: description of these texts, for messages.
        lengths: settings of features that it alone has, and which are at most
            half of max_seq_length where they are not given.
        extra_metrics: names of metrics beside those of the task.
        exported: a signature of the exported models, and an output of it that
            only these have; None where exports have no predictions.
    """

    name: ClassVar[str]
    head: ClassVar[str]
    labelled: ClassVar[bool] = False
    without_label: ClassVar[str] = "has no label"
    example_type: ClassVar[type]
    text_counts: ClassVar[range]
    text_format: ClassVar[str]
    lengths: ClassVar[tuple[str, ...]] = ()
    extra_metrics: ClassVar[tuple[str, ...]] = ()
    exported: ClassVar[tuple[str, str] | None] = None

    @abc.abstractmethod
    def example(self, texts: tuple[str, ...], number: int) -> Any:
        """Returns the unlabelled example of `text_counts` texts.

        `number`, from 1, is its id and stands in messages.
        """

    def for_model(self, config: FeatureConfig) -> "Kind":
        """Returns the kind for raw texts of a model with these settings."""
        return self

    def labels(self, examples: Sequence[Any]) -> list[str]:
        """Returns the class names that occur, sorted.

        Raises UserError for labels that no classifier can be trained on.
        """
        return []

    def label_scaling(self, examples: Sequence[Any]) -> LabelScaling:
        """Returns the scaling with which a new head learns these examples."""
        return LabelScaling()

    def label_ids(
        self, examples: Sequence[Any], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns class ids, or numbers, `[examples]` or `[words of all]`.

        0 where there is no label. Raises UserError for an unknown label.
        """
        raise NotImplementedError(f"{self.name} have no label ids.")

    def has_label(self, example: Any) -> bool:
        """Returns whether the gold label or answer is known."""
        return example.label is not None

    def texts(self, example: Any) -> tuple[str, ...]:
        """Returns an example's texts, in the order of their segments."""
        return example.texts

    def are_pairs(self, examples: Sequence[Any]) -> bool:
        """Returns whether the examples are pairs of texts."""
        # Questions and tagged words have no texts that could be swapped.
        return all(len(getattr(e, "texts", ())) == 2 for e in examples)

    def check(self, examples: Sequence[Any]) -> None:
        """Raises UserError for examples that cannot be batched together.

        `features` cannot check this: it sees one chunk at a time.
        """
        return

    def check_labels(
        self, examples: Sequence[Any], labels: Sequence[str]
    ) -> None:
        """Raises UserError for all labels that a model of `labels` lacks."""
        return

    def warnings(self, examples: Sequence[Any], *, training: bool) -> list[str]:
        """Returns one line for each defect that examples have.

        Raises UserError for defects that training would learn wrongly from.
        """
        empty = [
            example.location
            for example in examples
            if not all(map(str.strip, self.texts(example)))
        ]
        warning = f"{len(empty)} of {len(examples)} examples have an empty text"
        return [f"{warning}, the first {empty[0]}."] if empty else []

    def feature_warnings(
        self,
        examples: Sequence[Any],
        features: Features,
        config: FeatureConfig,
    ) -> list[str]:
        """Returns a warning on gold answers that cannot be predicted."""
        return []

    def in_both_orders(self, examples: Sequence[Any]) -> list[Any]:
        """Returns pairs, and after them each with its texts swapped."""
        for example in examples:
            if not self.are_pairs([example]):
                raise UserError(
                    f"{example.location}: double_unordered expects pairs of "
                    f"texts; this example of {self.name} is none."
                )
        swapped = [
            dataclasses.replace(example, texts=example.texts[::-1])
            for example in examples
        ]
        return [*examples, *swapped]

    @abc.abstractmethod
    def features(
        self,
        examples: Sequence[Any],
        tokenizer: Tokenizer,
        config: FeatureConfig,
        *,
        labels: Sequence[str],
        training: bool,
    ) -> Features:
        """Returns the features of a chunk of examples.

        `labels` are class names in the order of their ids. Training leaves
        out what only `scores` needs. Raises UserError for an unknown label.
        """

    @abc.abstractmethod
    def scores(
        self, features: Features, outputs: Outputs, config: FeatureConfig
    ) -> list[Any]:
        """Returns the scores of each example, from the head's outputs.

        `features` are made with training=False; rows of `outputs` may end in
        padding.
        """

    def class_weighted(
        self, features: Features, labels: Sequence[str], text: str
    ) -> tuple[Features, dict[str, float]]:
        """Returns training features with weights, and those of the classes.

        `text` is that of `class_weights`. Raises UserError for kinds without
        classes that have names.
        """
        raise UserError(
            f"class_weights={shown(text)}: {self.name} has no classes to weigh."
        )

    def exported_scores(
        self, call: CallSignature, examples: Sequence[Any]
    ) -> list[Any]:
        """Returns the scores of examples from an exported model.

        Kinds that name `exported` have this, or `exported_predictions`.
        """
        raise NotImplementedError(f"{self.name} have no exported scores.")

    def exported_predictions(
        self,
        call: CallSignature,
        examples: Sequence[Any],
        labels: Sequence[str],
    ) -> list[Prediction]:
        """Returns the predictions of an exported model of these labels."""
        scores = self.exported_scores(call, examples)
        scored = ScoredExamples(examples, scores, FeatureConfig(), labels)
        return self.predictions(scored)

    def ensemble(self, members: Sequence[Sequence[Any]]) -> list[Any]:
        """Returns the mean scores of several models."""
        rows = zip(*members, strict=True)
        return [np.mean(scores, axis=0) for scores in rows]

    def config_of_ensemble(
        self, configs: Sequence[FeatureConfig], labels: Sequence[str]
    ) -> FeatureConfig:
        """Returns the settings by which mean scores become predictions."""
        return configs[0]

    def metric_names(
        self, metrics: Mapping[str, Metric], labels: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns metrics that may select the best model, the default first."""
        return (*metrics, *self.extra_metrics)

    @abc.abstractmethod
    def compute_metrics(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the metrics, with those of a trivial baseline.

        The examples are labelled; kinds with an official script ignore the
        task's `metrics`.
        """

    def sampled_metric(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric], name: str
    ) -> SampledMetric | None:
        """Returns a metric as a function of the numbers of examples.

        For resampling: it is called thousands of times. None where `name`
        cannot be computed that fast.
        """
        return None

    def fitted_temperature(self, scored: ScoredExamples) -> float | None:
        """Returns the temperature that fits labelled examples best.

        None where the scores are no probabilities of classes.
        """
        return None

    def config_to_save(
        self, config: FeatureConfig, metrics: Mapping[str, float]
    ) -> FeatureConfig:
        """Returns the settings to store with a model that has `metrics`."""
        return config

    def predictions(self, scored: ScoredExamples) -> list[Prediction]:
        """Returns the prediction for each example."""
        rows = zip(scored.examples, scored.scores, strict=True)
        return [self._prediction(*row, scored) for row in rows]

    @abc.abstractmethod
    def _prediction(
        self, example: Any, scores: Any, scored: ScoredExamples
    ) -> Prediction:
        """Returns the prediction for one of the examples."""

    def table(self, scored: ScoredExamples) -> Table | None:
        """Returns metrics of each label of labelled examples, if any."""
        return None

    @abc.abstractmethod
    def figure(self, scored: ScoredExamples) -> Figure:
        """Returns right and wrong predictions of labelled examples."""

    def constant_prediction(self, scored: ScoredExamples) -> str | None:
        """Returns the one prediction that all of several examples have.

        A model that has diverged, or learned nothing, has one.
        """
        return None


def guess_of(metrics: Container[str]) -> str:
    """Returns the answer to all examples whose baseline is in `metrics`.

    By the metrics of `compute_metrics`, so that a run's log tells it too.
    """
    if "majority_class_exact" in metrics:
        return "no answer"
    if "majority_class_exact_match" in metrics:
        return "the most frequent labels"
    if "mean_guess_mean_squared_error" in metrics:
        return "the mean"
    return "the majority class"


def metric_of_sample(
    metrics: Mapping[str, Metric],
    name: str,
    gold: np.ndarray,
    predicted: np.ndarray,
) -> SampledMetric | None:
    """Returns one of the metrics of `[examples]` as a function of samples."""
    if name not in metrics:
        return None
    metric = metrics[name]
    return lambda rows: metric(gold[rows], predicted[rows])


def metric_values(
    metrics: Mapping[str, Metric], gold: np.ndarray, predicted: np.ndarray
) -> dict[str, float]:
    """Returns the values of metrics by name."""
    return {
        # NumPy's numbers cannot be written as JSON.
        name: float(metric(gold, predicted))
        for name, metric in metrics.items()
    }
