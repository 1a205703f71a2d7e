"""Predictions for raw texts, whatever the model's form: `BasePredictor`."""

import abc
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import UserError, lookup, require, shown
from albert_tf.prediction.items import (
    checked_items,
    example_of,
    predict_each,
    texts_of,
)
from albert_tf.tasks.kinds.base import Kind, Prediction
from albert_tf.tasks.kinds.classification import (
    Classification as TextClassification,
)

# Labels of pairs in `sentence_order`, in the order of the head's logits.
SENTENCE_ORDERS = ("in order", "swapped")
# The kinds of items, for messages.
_ONE_STRING = "one string"
_TWO_STRINGS = "two strings (on a line, with a tab between them)"


@dataclasses.dataclass(frozen=True)
class Classification:
    """The label of a text, or pair, and the probability of every label."""

    texts: tuple[str, ...]
    label: str
    probabilities: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Embedding:
    """A text's vectors: the mean state of its tokens, that of [CLS].

    `vector` is that of the predictor's pooling.
    """

    text: str
    mean: list[float]
    cls: list[float]
    vector: list[float]


@dataclasses.dataclass(frozen=True)
class FilledMask:
    """A text and the likeliest (piece, probability) for each of its [MASK]."""

    text: str
    candidates: list[list[tuple[str, float]]]


def _classification(found: Any) -> Any:
    """Returns a `Prediction` as a Classification, and an error as it is."""
    if isinstance(found, UserError):
        return found
    fields = found.fields
    own = fields["texts"] if "texts" in fields else [fields["text"]]
    return Classification(
        tuple(own), fields["prediction"], fields["probabilities"]
    )


class BasePredictor(abc.ABC):
    """Predicts for any number of texts, each read when its batch is due.

    The first item without a prediction raises UserError. With
    `return_exceptions` the error is yielded in its place, and the others have
    predictions; an item that is a UserError itself comes back. What prevents
    all predictions, such as a head that the model lacks, is always raised.
    """

    # The maximum length of a text, for messages.
    max_length: str
    # Names of the classes; empty for models without.
    labels: list[str]
    # Whether the model's task is on pairs of texts; None if unknown.
    pairs: bool | None = None
    # The columns of the model's task, as `--columns` has them.
    columns: Sequence[str] = ()
    # The separator of several labels in one text; "" if unknown.
    label_separator: str = ""
    # The kind of the task that the model was fine-tuned for, if known.
    own_kind: Kind | None = None
    # Whether the model has nothing but vectors of texts.
    only_embeds: bool

    def __init__(
        self, batch_size: int, pooling: str, poolings: Mapping[str, Any]
    ) -> None:
        """Checks a number from 1, and a name in a table of `poolings`."""
        require(
            batch_size >= 1,
            f"batch_size={batch_size!r}: expected a number from 1.",
        )
        lookup(poolings, pooling, "pooling")
        self.batch_size, self.pooling = batch_size, pooling

    def classify(
        self,
        texts: Iterable[str | Sequence[str]],
        *,
        return_exceptions: bool = False,
    ) -> Iterator[Classification]:
        """Yields the classification of each text, or pair of texts.

        Raises:
            UserError: when the model is not a classifier, or an item is
                neither a string nor one or two of them.
        """
        kind = self.own_kind
        if not isinstance(kind, TextClassification):
            kind = TextClassification()
        return map(
            _classification,
            self.predict(kind, texts, return_exceptions=return_exceptions),
        )

    def predict(
        self,
        kind: Kind,
        examples: Iterable[Any],
        *,
        return_exceptions: bool = False,
    ) -> Iterator[Prediction]:
        """Yields the prediction of a fine-tuned model for each example.

        Args:
            kind: of task, whose head the model has.
            examples: of this kind, or the strings that one consists of (see
                `Kind.text_format`): a question and its paragraph, for instance.
            return_exceptions: see above.

        Raises:
            UserError: when the model has another head, or an item is not what
                the kind takes.
        """
        self._check_kind(kind)
        kind = self._kind_by_settings(kind)

        def predict(batch: list[Any]) -> list[Prediction]:
            kind.check(batch)
            return self._predictions(kind, batch)

        yield from predict_each(
            checked_items(examples, kind.text_format),
            functools.partial(example_of, kind),
            predict,
            self.batch_size,
            return_exceptions,
        )

    def embed(
        self, texts: Iterable[str], *, return_exceptions: bool = False
    ) -> Iterator[Embedding]:
        """Yields the embedding of each text, whatever the model's heads.

        Raises:
            UserError: when an item is not a string.
        """
        self._check_embed()

        def predict(batch: list[str]) -> list[Embedding]:
            vectors = [array.tolist() for array in self._vectors(batch)]
            return [
                Embedding(*row) for row in zip(batch, *vectors, strict=True)
            ]

        yield from predict_each(
            checked_items(texts, _ONE_STRING),
            lambda item, number: texts_of(item, number, (1,), _ONE_STRING)[0],
            predict,
            self.batch_size,
            return_exceptions,
        )

    def fill_mask(
        self,
        texts: Iterable[str],
        top_k: int = 5,
        *,
        return_exceptions: bool = False,
    ) -> Iterator[FilledMask]:
        """Yields the likeliest pieces for each [MASK] of each text.

        Raises:
            UserError: when the model has no masked-LM head, an item is not a
                string, or a text has no [MASK] within the model's length; and
                for top_k below 1.
        """
        require(top_k >= 1, f"top_k={top_k!r}: expected a number from 1.")
        self._check_fill_mask(top_k)

        def example(item: Any, number: int) -> tuple[str, int]:
            return texts_of(item, number, (1,), _ONE_STRING)[0], number

        def predict(batch: list[tuple[str, int]]) -> Iterator[Any]:
            found = self._masks([text for text, _ in batch], top_k)
            for (text, number), candidates in zip(batch, found, strict=True):
                if len(candidates) >= max(text.count("[MASK]"), 1):
                    yield FilledMask(text, candidates)
                else:
                    yield UserError(
                        f"Text {number} has no [MASK], or one beyond the "
                        f"model's {self.max_length}: {shown(text)}."
                    )

        yield from predict_each(
            checked_items(texts, _ONE_STRING),
            example,
            predict,
            self.batch_size,
            return_exceptions,
        )

    def sentence_order(
        self,
        pairs: Iterable[Sequence[str]],
        *,
        return_exceptions: bool = False,
    ) -> Iterator[Classification]:
        """Yields for each pair whether its second text follows the first.

        The labels are SENTENCE_ORDERS; a model of next-sentence prediction
        means by the second that the text is of another document.

        Raises:
            UserError: when the model has no sentence-order head, or an item is
                not two strings.
        """
        self._check_sentence_order()

        def predict(batch: list[tuple[str, ...]]) -> list[Classification]:
            found = []
            for pair, values in zip(batch, self._orders(batch), strict=True):
                label = SENTENCE_ORDERS[int(values.argmax())]
                by_label = zip(SENTENCE_ORDERS, values.tolist(), strict=True)
                found.append(Classification(pair, label, dict(by_label)))
            return found

        yield from predict_each(
            checked_items(pairs, _TWO_STRINGS),
            lambda item, number: texts_of(item, number, (2,), _TWO_STRINGS),
            predict,
            self.batch_size,
            return_exceptions,
        )

    @abc.abstractmethod
    def predicts(self, kind: Kind) -> bool:
        """Returns whether the model predicts for examples of a kind."""

    @abc.abstractmethod
    def _check_kind(self, kind: Kind) -> None:
        """Raises UserError when the model was fine-tuned for another kind."""

    def _kind_by_settings(self, kind: Kind) -> Kind:
        """Returns a kind by the settings of the model, if these are known."""
        return kind

    @abc.abstractmethod
    def _check_embed(self) -> None:
        """Raises UserError when there are no vectors of texts."""

    @abc.abstractmethod
    def _check_fill_mask(self, top_k: int) -> None:
        """Raises UserError when the model has no top_k pieces for masks."""

    @abc.abstractmethod
    def _check_sentence_order(self) -> None:
        """Raises UserError when the model was not pretrained for this."""

    @abc.abstractmethod
    def _predictions(self, kind: Kind, batch: list[Any]) -> list[Prediction]:
        """Returns the predictions for a batch of a kind's examples."""

    @abc.abstractmethod
    def _vectors(self, batch: list[str]) -> list[np.ndarray]:
        """Returns the arrays of `Embedding`, in its order."""

    @abc.abstractmethod
    def _masks(
        self, batch: list[str], top_k: int
    ) -> Iterator[list[list[tuple[str, float]]]]:
        """Yields for each text (piece, probability) for each of its masks."""

    @abc.abstractmethod
    def _orders(self, batch: list[tuple[str, ...]]) -> np.ndarray:
        """Returns probabilities of SENTENCE_ORDERS, `[batch, 2]`."""
