"""BASELINES: the simple model of each kind of task, one row each."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.config import FeatureConfig, Log, UserError
from albert_tf.tasks.base import Task
from albert_tf.tasks.baselines import linear_tags, linear_texts, similarity
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.feature_building import cached, examples_digest
from albert_tf.tasks.kinds.base import Kind, ScoredExamples
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.multi_label import MultiLabelClassification
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import Spans
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.token_classification import TokenClassification

# Incremented when predictions change for equal examples.
_VERSION = 3


@dataclasses.dataclass(frozen=True)
class Baseline:
    """A simple model of one kind of task.

    Attributes:
        prefix: of its metrics' names.
        title: the model in words, for messages.
        predict: returns an array of the predictions for held-out examples,
            from the kind, training examples, held-out ones and labels.
        scores: returns the kind's scores of examples from that array and the
            labels.
        max_examples: learns from as many drawn examples at most, so that it
            takes seconds.
    """

    prefix: str
    title: str
    predict: Callable[[Any, Any, Any, Sequence[str]], np.ndarray]
    scores: Callable[[Any, np.ndarray, Sequence[str]], list]
    max_examples: int


def _of_classes(
    examples: Sequence[Any], ids: np.ndarray, labels: Sequence[str]
) -> list:
    return list(np.eye(len(labels))[ids])


def _of_rows(
    examples: Sequence[Any], rows: np.ndarray, labels: Sequence[str]
) -> list:
    return list(rows)


def _of_numbers(
    examples: Sequence[Any], numbers: np.ndarray, labels: Sequence[str]
) -> list:
    return numbers.tolist()


def _of_tags(
    examples: Sequence[WordsExample], ids: np.ndarray, labels: Sequence[str]
) -> list:
    ends = np.cumsum([len(example.words) for example in examples])
    return np.split(np.eye(len(labels))[ids], ends[:-1])


BASELINES: dict[type[Kind], Baseline] = {
    Classification: Baseline(
        "tfidf_",
        "TF-IDF with a linear model",
        linear_texts.predicted_classes,
        _of_classes,
        max_examples=100_000,
    ),
    MultiLabelClassification: Baseline(
        "tfidf_",
        "TF-IDF with a linear model of each label",
        linear_texts.label_probabilities,
        _of_rows,
        max_examples=100_000,
    ),
    Regression: Baseline(
        "tfidf_",
        "TF-IDF with a linear model",
        linear_texts.predicted_numbers,
        _of_numbers,
        max_examples=100_000,
    ),
    TokenClassification: Baseline(
        "nearby_words_",
        "a linear model of each word and its neighbours",
        linear_tags.predicted_tags,
        _of_tags,
        max_examples=20_000,
    ),
    Spans: Baseline(
        "tfidf_",
        "the sentence most like the question by TF-IDF",
        similarity.best_sentences,
        similarity.sentence_scores,
        max_examples=20_000,
    ),
    MultipleChoice: Baseline(
        "tfidf_",
        "the choice most like its context by TF-IDF",
        similarity.choice_similarities,
        _of_rows,
        max_examples=20_000,
    ),
}


def baseline_of(kind: Kind) -> Baseline | None:
    """Returns the row of a kind, or of the nearest class that it is made of."""
    rows = (BASELINES.get(base) for base in type(kind).__mro__)
    return next(filter(None, rows), None)


def baseline_scores(
    task: Task,
    train: Sequence[Any],
    held_out: Sequence[Any],
    *,
    cache_dir: str = "",
    log: Log = print,
) -> ScoredExamples:
    """Returns the scores of a task's simple model for held-out examples.

    `cache_dir` keeps its predictions; empty: no cache.

    Raises:
        UserError: for a kind without a row, and for examples that nothing can
            be learned from.
    """
    kind, baseline = task.kind, baseline_of(task.kind)
    if baseline is None:
        raise UserError(
            f"{task.name} is of {kind.name}, which have no row in BASELINES."
        )
    for examples in (train, held_out):
        kind.check(examples)
    # Refuses a single label.
    occurring = kind.labels(train)
    labels = list(task.labels) or occurring
    kind.check_labels(held_out, labels)

    def predictions() -> np.ndarray:
        drawn = _drawn(train, baseline.max_examples)
        log(
            f"Simple model: {baseline.title}, from {len(drawn)} of "
            f"{len(train)} training examples ..."
        )
        return baseline.predict(kind, drawn, held_out, labels)

    found = cached(
        cache_dir,
        lambda: [
            _VERSION,
            type(kind).__name__,
            labels,
            examples_digest(train),
            examples_digest(held_out),
        ],
        predictions,
        arrays_of=lambda array: {"predictions": array},
        value_of=lambda arrays: arrays["predictions"],
        log=log,
    )
    scores = baseline.scores(held_out, found, labels)
    return ScoredExamples(held_out, scores, FeatureConfig(), labels)


def _drawn(examples: Sequence[Any], most: int) -> Sequence[Any]:
    """Returns examples, `most` at random of more, in their order."""
    if len(examples) <= most:
        return examples
    rng = np.random.default_rng(0)
    numbers = np.sort(rng.permutation(len(examples))[:most])
    return [examples[number] for number in numbers]
