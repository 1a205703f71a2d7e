"""Using a model on raw texts."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import UserError, shown
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.modeling.heads import SentenceEmbeddingHead
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.base import Answers, Kind, Prediction
from albert_tf.tasks.kinds.texts import Classification as TextClassification
from albert_tf.tasks.kinds.texts import framed


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


def _padded(features: Features) -> dict[str, np.ndarray]:
    """Returns all rows as one batch, as wide as the longest."""
    return features.batch(np.arange(len(features)), features.lengths.max())


def _listed(texts: Iterable[Any], takes: str) -> list[Any]:
    """Returns the items; refuses a string, which would be its characters."""
    if isinstance(texts, str | bytes | Mapping) or not isinstance(
        texts, Iterable
    ):
        raise UserError(
            f"The texts are {shown(texts)}; expected a list, each item of it "
            f"{takes}."
        )
    return list(texts)


def _as_tuple(
    item: Any, number: int, counts: range, takes: str
) -> tuple[str, ...]:
    """Returns a string, or several, as a tuple; refuses what is neither."""
    texts = (item,) if isinstance(item, str) else item
    if (
        not isinstance(texts, tuple | list)
        or len(texts) not in counts
        or not all(isinstance(text, str) for text in texts)
    ):
        raise UserError(f"Text {number} is {shown(item)}; expected {takes}.")
    return tuple(texts)


def _strings(texts: Iterable[Any]) -> list[str]:
    """Returns single texts."""
    takes = "one string"
    return [
        _as_tuple(item, number, range(1, 2), takes)[0]
        for number, item in enumerate(_listed(texts, takes), start=1)
    ]


def _examples(kind: Kind, items: Iterable[Any]) -> list[Any]:
    """Returns examples of a kind, made of strings where they are not yet."""
    return [
        item
        if isinstance(item, kind.example_type)
        else kind.example(
            _as_tuple(item, number, kind.text_counts, kind.takes), number
        )
        for number, item in enumerate(_listed(items, kind.takes), start=1)
    ]


def _batches(texts: Sequence, size: int) -> Iterator[Sequence]:
    for first in range(0, len(texts), size):
        yield texts[first : first + size]


class Predictor:
    """A loaded model that answers texts, a batch at a time."""

    def __init__(self, loaded: LoadedModel, batch_size: int = 32) -> None:
        self.loaded = loaded
        self.batch_size = batch_size
        self._call = tf.function(
            lambda features: loaded.model(features, heads_only=True),
            reduce_retracing=True,
        )

    def _pack(self, token_ids: list[list[int]]) -> dict[str, np.ndarray]:
        """Returns the model's inputs for single texts."""
        features = framed(
            [[ids] for ids in token_ids],
            self.loaded.tokenizer,
            self.loaded.max_seq_length,
            {},
        )
        return _padded(features)

    def _run(self, features: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
        return self._call({k: tf.constant(v) for k, v in features.items()})

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
        """Yields what a fine-tuned model says of each example.

        Args:
            kind: whose head the model has.
            examples: of this kind, or the strings that one is made of (see
                `Kind.takes`): a question and its paragraph, for instance.

        Raises:
            UserError: when the model has another head, an item is not what
                the kind takes, or examples do not go with one another.
        """
        self.loaded.require_head(
            kind.head,
            "The model directory",
            f"use a model that was fine-tuned for {kind.name}.",
        )
        examples = _examples(kind, examples)
        if examples:
            kind.check(examples)
        config, labels = self.loaded.features, self.loaded.labels or []
        for batch in _batches(examples, self.batch_size):
            features = kind.features(
                batch,
                self.loaded.tokenizer,
                config,
                labels=labels,
                training=False,
            )
            outputs: dict[str, list] = {}
            # A long paragraph is many rows.
            for start in range(0, len(features), self.batch_size):
                rows = np.arange(len(features))[start:][: self.batch_size]
                width = features.lengths[rows].max()
                found = self._run(features.batch(rows, width))
                for name, values in found.items():
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
        for batch in _batches(_strings(texts), self.batch_size):
            ids = self.loaded.tokenizer.encode_batch(batch)
            features = {
                name: tf.constant(value)
                for name, value in self._pack(ids).items()
            }
            vectors = encode(features)
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
        for number, text in enumerate(_strings(texts), start=1):
            features = self._pack([tokenizer.encode_with_masks(text)])
            places = np.flatnonzero(
                features["input_ids"][0] == tokenizer.mask_id
            )
            wanted = text.count("[MASK]")
            if not wanted:
                raise UserError(f"Text {number} has no [MASK]: {text[:60]!r}.")
            if len(places) < wanted:
                raise UserError(
                    f"Text {number} has a [MASK] beyond the model's "
                    f"{self.loaded.max_seq_length} tokens: {text[:60]!r}; "
                    "shorten the text."
                )
            features["masked_lm_positions"] = places[None].astype(np.int32)
            logits = self._run(features)["masked_lm_logits"][0]
            probabilities = tf.nn.softmax(logits).numpy()
            best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top_k]
            yield FilledMask(
                text,
                [
                    [
                        (piece, float(probabilities[place, piece_id]))
                        for piece, piece_id in zip(
                            tokenizer.pieces([int(i) for i in row]),
                            row,
                            strict=True,
                        )
                    ]
                    for place, row in enumerate(best)
                ],
            )
