"""Predictions of a loaded model for raw texts."""

import abc
import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import UserError, shown
from albert_tf.interchange.model_directory import (
    LoadedModel,
    load_model_directory,
)
from albert_tf.modeling.heads.embedding import SentenceEmbeddingHead
from albert_tf.prediction.items import (
    batches,
    checked_items,
    example_of,
    predict_each,
    texts_of,
)
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.kinds.base import Kind, Prediction, ScoredExamples
from albert_tf.tasks.kinds.classification import (
    Classification as TextClassification,
)
from albert_tf.tasks.kinds.classification import softmax
from albert_tf.tasks.kinds.texts import sequence_features

Inputs = dict[str, np.ndarray]
# Labels of pairs in `sentence_order`, in the order of the head's logits.
SENTENCE_ORDERS = ("in order", "swapped")
# What items are, for messages.
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

    batch_size: int
    # A row of EMBEDDINGS.
    pooling: str
    # The maximum length of a text, for messages.
    max_length: str
    # The labels of `sentence_order`.
    sentence_orders = SENTENCE_ORDERS

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
                string, or a text has no [MASK] within the model's length.
        """
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

    @property
    @abc.abstractmethod
    def labels(self) -> list[str]:
        """Names of the classes; empty for models without."""

    @property
    @abc.abstractmethod
    def pairs(self) -> bool | None:
        """Whether the model's task is on pairs of texts; None if unknown."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns of the model's task, as `--columns` has them."""
        return ()

    @property
    def label_separator(self) -> str:
        """What stands between several labels in one text; "" if unknown."""
        return ""

    @property
    def own_kind(self) -> Kind | None:
        """The kind of the task that the model was fine-tuned for, if known."""
        return None

    @property
    @abc.abstractmethod
    def only_embeds(self) -> bool:
        """Whether the model has nothing but vectors of texts."""

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


class Predictor(BasePredictor):
    """Predicts with a model: a loaded one, or that of a directory or a run.

    `pooling` is that of embeddings; by default the one that the model was
    trained with, and else the mean.
    """

    def __init__(
        self,
        loaded: LoadedModel | str | os.PathLike,
        batch_size: int = 32,
        pooling: str = "",
    ) -> None:
        if not isinstance(loaded, LoadedModel):
            loaded = load_model_directory(os.fspath(loaded))
        self.loaded = loaded
        self.batch_size = batch_size
        own = loaded.model.head_options
        self.pooling = pooling or str(own.get("pooling", "mean"))
        self.max_length = f"{loaded.max_seq_length} tokens"
        self._call = tf.function(
            lambda features: loaded.model(features, heads_only=True),
            reduce_retracing=True,
        )
        head = SentenceEmbeddingHead(
            loaded.model.config, self.pooling, str(own.get("length", "any"))
        )
        self._encode = tf.function(
            lambda features: head(loaded.model.encode(features), features),
            reduce_retracing=True,
        )

    def _inputs(self, texts: Sequence[Sequence[Sequence[int]]]) -> Inputs:
        """Returns the model's inputs for the ids of texts, or of pairs."""
        loaded = self.loaded
        features = sequence_features(
            texts, loaded.tokenizer, loaded.max_seq_length, {}
        )
        return features.batch(np.arange(len(features)))

    @property
    def labels(self) -> list[str]:
        """Names of the classes; empty for models without."""
        return self.loaded.labels or []

    @property
    def pairs(self) -> bool | None:
        """Whether the model's task is on pairs of texts; None if unknown."""
        return self.loaded.task.pairs if self.loaded.task else None

    @property
    def columns(self) -> Sequence[str]:
        """The columns of the model's task, as `--columns` has them."""
        return self.loaded.task.columns if self.loaded.task else ()

    @property
    def label_separator(self) -> str:
        """What stands between several labels in one text; "" if unknown."""
        return self.loaded.task.label_separator if self.loaded.task else ""

    @property
    def own_kind(self) -> Kind | None:
        """The kind of the task that the model was fine-tuned for, if known."""
        task = TASKS.get(self.loaded.task.task) if self.loaded.task else None
        return task.kind if task and self.predicts(task.kind) else None

    @property
    def only_embeds(self) -> bool:
        """Whether the model has nothing but vectors of texts."""
        names = {SentenceEmbeddingHead.head_name}
        return names.issuperset(self.loaded.model.head_names)

    def predicts(self, kind: Kind) -> bool:
        """Returns whether the model predicts for examples of a kind."""
        return kind.head in self.loaded.model.head_names

    def _check_kind(self, kind: Kind) -> None:
        self.loaded.require_head(
            kind.head,
            "The model directory",
            f"use a model that was fine-tuned for {kind.name}.",
        )

    def _kind_by_settings(self, kind: Kind) -> Kind:
        return kind.for_model(self.loaded.features)

    def _check_embed(self) -> None:
        return

    def _check_fill_mask(self, top_k: int) -> None:
        self._require_pretrained("masked_lm")

    def _check_sentence_order(self) -> None:
        self._require_pretrained("sentence_order")

    def _require_pretrained(self, head: str) -> None:
        self.loaded.require_head(
            head, "The model directory", "use the pretrained model."
        )

    def _predictions(self, kind: Kind, batch: list[Any]) -> list[Prediction]:
        loaded = self.loaded
        config, labels = loaded.features, loaded.labels or []
        features = kind.features(
            batch, loaded.tokenizer, config, labels=labels, training=False
        )
        outputs: dict[str, list] = {}
        # A long paragraph is many rows.
        for rows in batches(range(len(features)), self.batch_size):
            inputs = features.batch(np.array(rows))
            for name, values in self._call(inputs).items():
                outputs.setdefault(name, []).extend(values.numpy())
        scores = kind.scores(features, outputs, config)
        return kind.predictions(ScoredExamples(batch, scores, config, labels))

    def vectors(self, ids: Sequence[Sequence[int]]) -> np.ndarray:
        """Returns the embeddings `[texts, width]` of texts as token ids.

        Texts of similar length are computed together.
        """
        order = np.argsort([len(text) for text in ids], kind="stable")
        parts = [
            self._encode(self._inputs([[ids[row]] for row in rows]))
            for rows in batches(order.tolist(), self.batch_size)
        ]
        ordered = np.concatenate([part["embedding"].numpy() for part in parts])
        vectors = np.empty_like(ordered)
        vectors[order] = ordered
        return vectors

    def _vectors(self, batch: list[str]) -> list[np.ndarray]:
        ids = self.loaded.tokenizer.encode_batch(batch)
        found = self._encode(self._inputs([[text] for text in ids]))
        names = "mean_embedding", "cls_embedding", "embedding"
        return [found[name].numpy() for name in names]

    def _masks(
        self, batch: list[str], top_k: int
    ) -> Iterator[list[list[tuple[str, float]]]]:
        tokenizer = self.loaded.tokenizer
        for text in batch:
            features = self._inputs([[tokenizer.encode_with_masks(text)]])
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

    def _orders(self, batch: list[tuple[str, ...]]) -> np.ndarray:
        encode = self.loaded.tokenizer.encode_batch
        columns = (encode(list(texts)) for texts in zip(*batch, strict=True))
        features = self._inputs(list(zip(*columns, strict=True)))
        if "masked_lm" in self.loaded.model.head_names:
            none = np.zeros((len(batch), 0), np.int32)
            features["masked_lm_positions"] = none
        return softmax(self._call(features)["sentence_order_logits"].numpy())
