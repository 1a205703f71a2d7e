"""Predictions of a loaded model for raw texts."""

import abc
import dataclasses
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import UserError, require, shown
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.modeling.heads.embedding import SentenceEmbeddingHead
from albert_tf.tasks.kinds.base import Answers, Kind, Prediction
from albert_tf.tasks.kinds.classification import (
    Classification as TextClassification,
)
from albert_tf.tasks.kinds.texts import sequence_features


@dataclasses.dataclass(frozen=True)
class Classification:
    """The label of a text, or pair, and the probability of every label."""

    texts: tuple[str, ...]
    label: str
    probabilities: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Embedding:
    """A text's vectors: the mean state of its tokens, that of [CLS]."""

    text: str
    mean: list[float]
    cls: list[float]


@dataclasses.dataclass(frozen=True)
class FilledMask:
    """A text and the likeliest (piece, probability) for each of its [MASK]."""

    text: str
    candidates: list[list[tuple[str, float]]]


def _tuples(
    items: Iterable[Any],
    counts: Container[int],
    expected: str,
    kept: type | tuple[()] = (),
) -> Iterator[Any]:
    """Yields each item, a string or several, as a tuple; `kept` as it is."""
    require(
        # A string would be its characters.
        isinstance(items, Iterable)
        and not isinstance(items, str | bytes | Mapping),
        f"The texts are {shown(items)}; expected a list, each item of it "
        f"{expected}.",
    )
    for number, item in enumerate(items, start=1):
        texts = (item,) if isinstance(item, str) else item
        if isinstance(item, kept):
            yield item
        elif (
            isinstance(texts, tuple | list)
            and len(texts) in counts
            and all(isinstance(text, str) for text in texts)
        ):
            yield tuple(texts)
        else:
            raise UserError(
                f"Text {number} is {shown(item)}; expected {expected}."
            )


def _examples(kind: Kind, items: Iterable[Any]) -> Iterator[Any]:
    """Yields examples of a kind, built from strings where they are not yet."""
    own = kind.example_type
    checked = _tuples(items, kind.text_counts, kind.text_format, own)
    for number, item in enumerate(checked, start=1):
        yield item if isinstance(item, own) else kind.example(item, number)


def _strings(items: Iterable[Any]) -> Iterator[str]:
    return (text for (text,) in _tuples(items, (1,), "one string"))


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    remaining = iter(items)
    while batch := list(itertools.islice(remaining, size)):
        yield batch


class BasePredictor(abc.ABC):
    """Predicts for any number of texts, each read when its batch is due."""

    batch_size: int
    # The maximum length of a text, for messages.
    max_length: str

    def classify(
        self, texts: Iterable[str | Sequence[str]]
    ) -> Iterator[Classification]:
        """Yields the classification of each text, or pair of texts.

        Raises:
            UserError: when the model is not a classifier, or an item is
                neither a string nor one or two of them.
        """
        for prediction in self.predict(TextClassification(), texts):
            fields = prediction.fields
            own = fields["texts"] if "texts" in fields else [fields["text"]]
            yield Classification(
                tuple(own), fields["prediction"], fields["probabilities"]
            )

    def predict(
        self, kind: Kind, examples: Iterable[Any]
    ) -> Iterator[Prediction]:
        """Yields the prediction of a fine-tuned model for each example.

        Args:
            kind: of task, whose head the model has.
            examples: of this kind, or the strings that one consists of (see
                `Kind.text_format`): a question and its paragraph, for instance.

        Raises:
            UserError: when the model has another head, an item is not what
                the kind takes, or an example does not go with the first.
        """
        self._check_kind(kind)
        first: list[Any] = []
        for batch in _batches(_examples(kind, examples), self.batch_size):
            first = first or batch[:1]
            kind.check(first + batch)
            yield from self._predictions(kind, batch)

    def embed(self, texts: Iterable[str]) -> Iterator[Embedding]:
        """Yields the embedding of each text, whatever the model's heads.

        Raises:
            UserError: when an item is not a string.
        """
        for batch in _batches(_strings(texts), self.batch_size):
            for text, mean, cls in zip(
                batch, *self._vectors(batch), strict=True
            ):
                yield Embedding(text, mean.tolist(), cls.tolist())

    def fill_mask(
        self, texts: Iterable[str], top_k: int = 5
    ) -> Iterator[FilledMask]:
        """Yields the likeliest pieces for each [MASK] of each text.

        Raises:
            UserError: when the model has no masked-LM head, an item is not a
                string, or a text has no [MASK] within the model's length.
        """
        filled = (
            FilledMask(text, candidates)
            for batch in _batches(_strings(texts), self.batch_size)
            for text, candidates in zip(
                batch, self._masks(batch, top_k), strict=True
            )
        )
        for number, found in enumerate(filled, start=1):
            require(
                len(found.candidates) >= max(found.text.count("[MASK]"), 1),
                f"Text {number} has no [MASK], or one beyond the model's "
                f"{self.max_length}: {found.text[:60]!r}.",
            )
            yield found

    @abc.abstractmethod
    def has_head(self, name: str) -> bool:
        """Returns whether the model has a head of that name."""

    @abc.abstractmethod
    def _check_kind(self, kind: Kind) -> None:
        """Raises UserError when the model was fine-tuned for another kind."""

    @abc.abstractmethod
    def _predictions(self, kind: Kind, batch: list[Any]) -> list[Prediction]:
        """Returns the predictions for a batch of a kind's examples."""

    @abc.abstractmethod
    def _vectors(self, batch: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the mean states of tokens, and those of [CLS]."""

    @abc.abstractmethod
    def _masks(
        self, batch: list[str], top_k: int
    ) -> Iterator[list[list[tuple[str, float]]]]:
        """Yields for each text (piece, probability) for each of its masks."""


class Predictor(BasePredictor):
    """Predicts with a loaded model."""

    def __init__(self, loaded: LoadedModel, batch_size: int = 32) -> None:
        self.loaded = loaded
        self.batch_size = batch_size
        self.max_length = f"{loaded.max_seq_length} tokens"
        self._call = tf.function(
            lambda features: loaded.model(features, heads_only=True),
            reduce_retracing=True,
        )
        head = SentenceEmbeddingHead(loaded.model.config)
        self._encode = tf.function(
            lambda features: head(loaded.model.encode(features), features),
            reduce_retracing=True,
        )

    def _inputs(self, token_ids: list[list[int]]) -> dict[str, np.ndarray]:
        """Returns the model's inputs for single texts."""
        features = sequence_features(
            [[ids] for ids in token_ids],
            self.loaded.tokenizer,
            self.loaded.max_seq_length,
            {},
        )
        return features.batch(np.arange(len(features)))

    def has_head(self, name: str) -> bool:
        """Returns whether the model has a head of that name."""
        return name in self.loaded.model.head_names

    def _check_kind(self, kind: Kind) -> None:
        self.loaded.require_head(
            kind.head,
            "The model directory",
            f"use a model that was fine-tuned for {kind.name}.",
        )

    def _predictions(self, kind: Kind, batch: list[Any]) -> list[Prediction]:
        loaded = self.loaded
        config, labels = loaded.features, loaded.labels or []
        features = kind.features(
            batch, loaded.tokenizer, config, labels=labels, training=False
        )
        outputs: dict[str, list] = {}
        # A long paragraph is many rows.
        for rows in _batches(range(len(features)), self.batch_size):
            inputs = features.batch(np.array(rows))
            for name, values in self._call(inputs).items():
                outputs.setdefault(name, []).extend(values.numpy())
        scores = kind.scores(features, outputs, config)
        return kind.predictions(Answers(batch, scores, config, labels))

    def _vectors(self, batch: list[str]) -> tuple[np.ndarray, np.ndarray]:
        ids = self.loaded.tokenizer.encode_batch(batch)
        found = self._encode(self._inputs(ids))
        return found["mean_embedding"].numpy(), found["cls_embedding"].numpy()

    def _masks(
        self, batch: list[str], top_k: int
    ) -> Iterator[list[list[tuple[str, float]]]]:
        self.loaded.require_head(
            "masked_lm",
            "The model directory",
            "use the pretrained model, or --mode=classify.",
        )
        tokenizer = self.loaded.tokenizer
        for text in batch:
            features = self._inputs([tokenizer.encode_with_masks(text)])
            (ids,) = features["input_ids"]
            positions = np.flatnonzero(ids == tokenizer.mask_id)
            if not positions.size:
                yield []
                continue
            features["masked_lm_positions"] = positions[None].astype(np.int32)
            logits = self._call(features)["masked_lm_logits"][0]
            probabilities = tf.nn.softmax(logits).numpy()
            best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top_k]
            values = np.take_along_axis(probabilities, best, axis=-1)
            yield [
                list(zip(tokenizer.pieces(ids), row, strict=True))
                for ids, row in zip(best.tolist(), values.tolist(), strict=True)
            ]
