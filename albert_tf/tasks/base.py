"""What a task is: a row of a reader, a kind, metrics and settings."""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from albert_tf.config import FeatureConfig, UserError, shown
from albert_tf.tasks.features import Features
from albert_tf.text.tokenizer_base import Tokenizer


@dataclasses.dataclass(frozen=True)
class Example:
    """One text, or a pair, and what is to be said of it.

    Attributes:
        texts: one or two.
        label: the name of a class, or a number as it is written; None where
            the file does not tell.
        place: file and line, for messages.
    """

    texts: tuple[str, ...]
    label: str | None
    place: str = dataclasses.field(default="", compare=False)

    def __post_init__(self) -> None:
        """Refuses a string, whose characters would be taken for texts."""
        if not isinstance(self.texts, tuple) or len(self.texts) not in (1, 2):
            raise UserError(
                f"An example's texts are {shown(self.texts)}; expected a "
                "tuple of one or two strings."
            )


Metric = Callable[[np.ndarray, np.ndarray], float]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a model says of one example, for people and files.

    Attributes:
        fields: what a line of predictions.jsonl holds.
        place: of the example.
        error: 0 where the answer is right or nobody knows; else how wrong it
            is, larger for what the model was surer of.
    """

    fields: dict[str, Any]
    place: str
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

    def kept(
        self, config: FeatureConfig, measures: Mapping[str, float]
    ) -> FeatureConfig:
        """Returns what a model keeps that was evaluated with `measures`."""
        return config

    def measured(
        self, metrics: Mapping[str, Metric], labels: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns the measures that may choose the best model.

        The first does where nobody says otherwise.
        """
        return tuple(metrics)

    @abc.abstractmethod
    def is_told(self, example: Any) -> bool:
        """Returns whether the file tells the answer."""

    def check(self, examples: Sequence[Any]) -> None:
        """Raises UserError for examples that do not go with one another.

        `features` are made part by part, and cannot tell.
        """
        return

    def remarks(self, examples: Sequence[Any], *, training: bool) -> list[str]:
        """Returns what is to be said of examples that are not as they should
        be, and are used all the same.

        Raises:
            UserError: for what training would learn wrongly from.
        """
        return []

    def feature_remarks(
        self,
        examples: Sequence[Any],
        features: Features,
        config: FeatureConfig,
    ) -> list[str]:
        """Returns a remark on gold answers that no prediction can match."""
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
    def averaged(self, members: Sequence[list[Any]]) -> list[Any]:
        """Returns the mean of what several models say (`scores`)."""

    @abc.abstractmethod
    def measures(
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

        The examples tell what is right, here and in `picture`.
        """
        return None

    @abc.abstractmethod
    def picture(self, answers: Answers) -> "Picture":
        """Returns what shows at a glance where answers are right or wrong."""

    @abc.abstractmethod
    def only_answer(self, answers: Answers) -> str | None:
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


Picture = ConfusionMatrix | Distributions


class Reader(Protocol):
    """What reads a task's files.

    Attributes:
        splits: that it knows.
    """

    splits: tuple[str, ...]

    def read(
        self, data_dir: str, split: str, say: Callable[[str], None]
    ) -> Sequence[Any]:
        """Returns the examples of a split.

        Args:
            data_dir: where the files lie.
            split: one of `splits`.
            say: takes a line on what was left out.

        Raises:
            UserError: naming file and line.
        """


@dataclasses.dataclass(frozen=True)
class Task:
    """A task as data.

    Attributes:
        name: as in `--task`.
        kind: what its examples and answers are.
        reader: of its files.
        metrics: of (label ids, or numbers, and predicted ones), both
            `[examples]`.
        labels: in the order of their numbers; empty: those that the training
            examples have.
        settings: the paper's, by name (Table 14), and those of the dropout.
        settings_v2: what differs for the second models.
        evaluated: what is evaluated in training: ending of a measure's name
            -> split.
        submissions: the benchmark's name for the predictions of a split.
        ordered: whether the label depends on which text of a pair is first.
    """

    name: str
    kind: Kind
    reader: Reader
    metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings_v2: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    evaluated: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"": "dev"}
    )
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ordered: bool = False

    def read(
        self,
        data_dir: str,
        split: str,
        say: Callable[[str], None] = print,
    ) -> Sequence[Any]:
        """Returns the examples of a split.

        Args:
            data_dir: where the files lie.
            split: train, dev or another that the reader has.
            say: takes a line on what was left out.

        Raises:
            UserError: for a split that the task has not, and for what is
                wrong in its files.
        """
        if split not in self.reader.splits:
            raise UserError(
                f"{self.name} has no split {split!r}; it has "
                f"{', '.join(self.reader.splits)}."
            )
        return self.reader.read(data_dir, split, say)
