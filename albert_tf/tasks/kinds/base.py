"""The interface of a kind of task, and the values that it returns."""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.features import Features
from albert_tf.text.tokenizer_base import Tokenizer

Metric = Callable[[np.ndarray, np.ndarray], float]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a model says of one example, for people and files.

    Attributes:
        fields: what a line of predictions.jsonl holds.
        location: of the example.
        error: 0 where the answer is right or nobody knows; else how wrong it
            is, larger for what the model was surer of.
    """

    fields: dict[str, Any]
    location: str
    error: float


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a model, or several together, say of examples.

    Attributes:
        examples: of one kind.
        scores: of each example (`Kind.scores`).
        config: how scores become answers.
        labels: of the model.
    """

    examples: Sequence[Any]
    scores: Sequence[Any]
    config: FeatureConfig
    labels: Sequence[str]


class Kind(abc.ABC):
    """How examples become a head's inputs, and its outputs become answers.

    Attributes:
        name: for people and messages.
        head: the row of modeling.heads.HEADS.
        labelled: whether the model has names of classes.
        example_type: the class of its examples.
        text_counts: how many texts an example is made of.
        takes: these texts, in words.
    """

    name: ClassVar[str]
    head: ClassVar[str]
    labelled: ClassVar[bool] = False
    example_type: ClassVar[type]
    text_counts: ClassVar[range]
    takes: ClassVar[str]

    @abc.abstractmethod
    def example(self, texts: tuple[str, ...], number: int) -> Any:
        """Returns the example of texts whose answer is not known.

        Args:
            texts: one of `text_counts` strings.
            number: of the example, from 1: its id, and for messages.
        """

    def labels(self, examples: Sequence[Any]) -> list[str]:
        """Returns the names of the classes that occur, sorted."""
        return []

    def config_to_save(
        self, config: FeatureConfig, measures: Mapping[str, float]
    ) -> FeatureConfig:
        """Returns what a model keeps that was evaluated with `measures`."""
        return config

    def metric_names(
        self, metrics: Mapping[str, Metric], labels: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns the measures that may choose the best model.

        The first does where nobody says otherwise.
        """
        return tuple(metrics)

    @abc.abstractmethod
    def has_label(self, example: Any) -> bool:
        """Returns whether the file tells the answer."""

    def check(self, examples: Sequence[Any]) -> None:
        """Raises UserError for examples that do not go with one another.

        `features` are made part by part, and cannot tell.
        """
        return

    def warnings(self, examples: Sequence[Any], *, training: bool) -> list[str]:
        """Returns what is to be said of examples that are not as they should
        be, and are used all the same.

        Raises:
            UserError: for what training would learn wrongly from.
        """
        return []

    def feature_warnings(
        self,
        examples: Sequence[Any],
        features: Features,
        config: FeatureConfig,
    ) -> list[str]:
        """Returns a warning on gold answers that no prediction can match."""
        return []

    def in_both_orders(self, examples: Sequence[Any]) -> list[Any]:
        """Returns examples, and after them each with its texts swapped.

        Raises:
            UserError: for what has no two texts.
        """
        raise UserError(
            "double_unordered is for pairs of texts, and an example of "
            f"{self.name} is none."
        )

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
        """Returns the rows of examples; what can be done part by part.

        Args:
            examples: of this kind.
            tokenizer: the model's.
            config: lengths.
            labels: names of the classes, in the order of their numbers.
            training: whether only what the loss needs is wanted.
        """

    @abc.abstractmethod
    def scores(
        self,
        examples: Sequence[Any],
        features: Features,
        outputs: Mapping[str, Sequence[np.ndarray]],
        config: FeatureConfig,
    ) -> list[Any]:
        """Returns what the outputs say of each example, in numbers.

        Args:
            examples: of this kind.
            features: theirs, made with training=False.
            outputs: of the head, by name: an array for each row of features,
                padding at its end.
            config: lengths.
        """

    @abc.abstractmethod
    def ensemble(self, members: Sequence[list[Any]]) -> list[Any]:
        """Returns the mean of what several models say (`scores`)."""

    @abc.abstractmethod
    def compute_metrics(
        self, answers: Answers, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the metrics, and beside them what guessing would reach.

        Args:
            answers: to examples that tell what is right.
            metrics: of the task; kinds with a script of their own need none.
        """

    @abc.abstractmethod
    def predictions(self, answers: Answers) -> list[Prediction]:
        """Returns what is said of each example, for people."""

    def table(self, answers: Answers) -> "Table | None":
        """Returns measures of each label, or part, where there are any.

        The examples tell what is right, here and in `figure`.
        """
        return None

    @abc.abstractmethod
    def figure(self, answers: Answers) -> "Figure":
        """Returns what shows at a glance where answers are right or wrong."""

    @abc.abstractmethod
    def constant_prediction(self, answers: Answers) -> str | None:
        """Returns the answer that is given to every example, if there is one.

        In words. A model that has diverged, or learned nothing, has one.
        """


@dataclasses.dataclass(frozen=True)
class Table:
    """Measures of labels, or parts, for people."""

    header: list[str]
    rows: list[list[str]]


@dataclasses.dataclass(frozen=True)
class ConfusionMatrix:
    """How often each label was given for each.

    Attributes:
        labels: their names.
        counts: `[labels, given labels]`.
    """

    labels: list[str]
    counts: np.ndarray


@dataclasses.dataclass(frozen=True)
class Distributions:
    """Numbers of groups of examples, to be drawn over one another.

    Attributes:
        measure: what they are.
        groups: `[examples of the group]` by its name.
    """

    measure: str
    groups: dict[str, np.ndarray]


Figure = ConfusionMatrix | Distributions
