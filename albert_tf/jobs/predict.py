"""Predictions of a loaded model for raw texts."""

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import UserError, require, shown
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.modeling.heads.embedding import SentenceEmbeddingHead
from albert_tf.tasks.features import Features
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
) -> list[Any]:
    """Returns each item, a string or several, as a tuple; `kept` as it is."""
    require(
        # A string would be its characters.
        isinstance(items, Iterable)
        and not isinstance(items, str | bytes | Mapping),
        f"The texts are {shown(items)}; expected a list, each item of it "
        f"{expected}.",
    )
    found = []
    for number, item in enumerate(items, start=1):
        texts = (item,) if isinstance(item, str) else item
        if isinstance(item, kept):
            found.append(item)
        elif (
            isinstance(texts, tuple | list)
            and len(texts) in counts
            and all(isinstance(text, str) for text in texts)
        ):
            found.append(tuple(texts))
        else:
            raise UserError(
                f"Text {number} is {shown(item)}; expected {expected}."
            )
    return found


def _examples(kind: Kind, items: Iterable[Any]) -> list[Any]:
    """Returns examples of a kind, built from strings where they are not yet."""
    own = kind.example_type
    checked = _tuples(items, kind.text_counts, kind.takes, own)
    return [
        item if isinstance(item, own) else kind.example(item, number)
        for number, item in enumerate(checked, start=1)
    ]


def _batches(items: Any, size: int) -> Iterator[Any]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


class Predictor:
    """A loaded model that predicts for texts, a batch at a time."""

    def __init__(self, loaded: LoadedModel, batch_size: int = 32) -> None:
        self.loaded = loaded
        self.batch_size = batch_size
        self._call = tf.function(
            lambda features: loaded.model(features, heads_only=True),
            reduce_retracing=True,
        )

    def _pack(self, token_ids: list[list[int]]) -> dict[str, np.ndarray]:
        """Returns the model's inputs for single texts."""
        loaded = self.loaded
        features = sequence_features(
            [[i] for i in token_ids],
            loaded.tokenizer,
            loaded.max_seq_length,
            {},
        )
        return _padded(features, np.arange(len(features)))

    def classify(
        self, texts: Iterable[str | Sequence[str]]
    ) -> Iterator[Classification]:
        """Yields the classification of each text, or pair of texts.

        Raises:
            UserError: when the model is not a classifier, or an item is
                neither a string nor one or two of them.
        """
        kind = TextClassification()
        examples = _examples(kind, texts)
        for example, prediction in zip(
            examples, self.predict(kind, examples), strict=True
        ):
            yield Classification(
                example.texts,
                prediction.fields["prediction"],
                prediction.fields["probabilities"],
            )

    def predict(
        self, kind: Kind, examples: Iterable[Any]
    ) -> Iterator[Prediction]:
        """Yields the prediction of a fine-tuned model for each example.

        Args:
            kind: whose head the model has.
            examples: of this kind, or the strings that one consists of (see
                `Kind.takes`): a question and its paragraph, for instance.

        Raises:
            UserError: when the model has another head, an item is not what
                the kind takes, or examples do not go with one another.
        """
        loaded = self.loaded
        loaded.require_head(
            kind.head,
            "The model directory",
            f"use a model that was fine-tuned for {kind.name}.",
        )
        examples = _examples(kind, examples)
        if examples:
            kind.check(examples)
        config, labels = loaded.features, loaded.labels or []
        for batch in _batches(examples, self.batch_size):
            features = kind.features(
                batch, loaded.tokenizer, config, labels=labels, training=False
            )
            outputs: dict[str, list] = {}
            # A long paragraph is many rows.
            for rows in _batches(np.arange(len(features)), self.batch_size):
                for name, values in self._call(_padded(features, rows)).items():
                    outputs.setdefault(name, []).extend(values.numpy())
            scores = kind.scores(batch, features, outputs, config)
            yield from kind.predictions(Answers(batch, scores, config, labels))

    def embed(self, texts: Iterable[str]) -> Iterator[Embedding]:
        """Yields the embedding of each text, whatever the model's heads.

        Raises:
            UserError: when an item is not a string.
        """
        head = SentenceEmbeddingHead(self.loaded.model.config)
        encode = tf.function(
            lambda features: head(self.loaded.model.encode(features), features),
            reduce_retracing=True,
        )
        strings = [text for (text,) in _tuples(texts, (1,), "one string")]
        for batch in _batches(strings, self.batch_size):
            ids = self.loaded.tokenizer.encode_batch(batch)
            vectors = encode(self._pack(ids))
            for text, mean, cls in zip(
                batch,
                vectors["mean_embedding"].numpy(),
                vectors["cls_embedding"].numpy(),
                strict=True,
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
        self.loaded.require_head(
            "masked_lm",
            "The model directory",
            "use the pretrained model, or --mode=classify.",
        )
        tokenizer = self.loaded.tokenizer
        strings = _tuples(texts, (1,), "one string")
        for number, (text,) in enumerate(strings, start=1):
            features = self._pack([tokenizer.encode_with_masks(text)])
            (ids,) = features["input_ids"]
            positions = np.flatnonzero(ids == tokenizer.mask_id)
            require(
                len(positions) >= max(text.count("[MASK]"), 1),
                f"Text {number} has no [MASK], or one beyond the model's "
                f"{self.loaded.max_seq_length} tokens: {text[:60]!r}.",
            )
            features["masked_lm_positions"] = positions[None].astype(np.int32)
            logits = self._call(features)["masked_lm_logits"][0]
            probabilities = tf.nn.softmax(logits).numpy()
            best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top_k]
            values = np.take_along_axis(probabilities, best, axis=-1)
            yield FilledMask(
                text,
                [
                    list(zip(tokenizer.pieces(ids), row, strict=True))
                    for ids, row in zip(
                        best.tolist(), values.tolist(), strict=True
                    )
                ],
            )


def _padded(features: Features, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Returns rows as one batch, as wide as the longest."""
    return features.batch(rows, features.lengths[rows].max())
