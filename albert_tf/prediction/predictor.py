"""Predictions of a loaded model for raw texts."""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import require
from albert_tf.interchange.model_directory import (
    LoadedModel,
    load_model_directory,
)
from albert_tf.modeling.heads.embedding import SentenceEmbeddingHead
from albert_tf.modeling.heads.pooling import EMBEDDINGS
from albert_tf.modeling.models import AlbertModel
from albert_tf.prediction.base import BasePredictor
from albert_tf.prediction.items import batches
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.kinds.base import Kind, Prediction, ScoredExamples
from albert_tf.tasks.kinds.classification import softmax
from albert_tf.tasks.kinds.texts import sequence_features


class Predictor(BasePredictor):
    """Predicts with a model: a loaded one, or that of a directory or a run.

    `pooling` is that of embeddings; by default the one that the model was
    trained with, and else the mean.

    Raises:
        UserError: on another backend of Keras than TensorFlow.
    """

    def __init__(
        self,
        loaded: LoadedModel | str | os.PathLike,
        batch_size: int = 32,
        pooling: str = "",
    ) -> None:
        backend = keras.backend.backend()
        require(
            backend == "tensorflow",
            f"Predictor runs on Keras' TensorFlow backend, not on {backend}; "
            "call the model itself there, or unset KERAS_BACKEND.",
        )
        if not isinstance(loaded, LoadedModel):
            loaded = load_model_directory(os.fspath(loaded))
        own = loaded.model.head_options
        default = str(own.get("pooling", "mean"))
        super().__init__(batch_size, pooling or default, EMBEDDINGS)
        self.loaded = loaded
        self.max_length = f"{loaded.max_seq_length} tokens"
        self.labels = loaded.labels or []
        vectors = {SentenceEmbeddingHead.head_name}
        self.only_embeds = vectors.issuperset(loaded.model.head_names)
        if record := loaded.task:
            self.pairs, self.columns = record.pairs, record.columns
            self.label_separator = record.label_separator
            task = TASKS.get(record.task)
            if task and self.predicts(task.kind):
                self.own_kind = task.kind
        self._call = _traced(functools.partial(loaded.model, heads_only=True))
        head = SentenceEmbeddingHead(
            loaded.model.config, self.pooling, str(own.get("length", "any"))
        )
        self._encode = _traced(functools.partial(_vectors, loaded.model, head))

    def _inputs(
        self, texts: Sequence[Sequence[Sequence[int]]]
    ) -> dict[str, np.ndarray]:
        """Returns the model's inputs for the ids of texts, or of pairs."""
        loaded = self.loaded
        features = sequence_features(
            texts, loaded.tokenizer, loaded.max_seq_length, {}
        )
        return features.batch(np.arange(len(features)))

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
        config, labels = loaded.features, self.labels
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


def _vectors(
    model: AlbertModel,
    head: SentenceEmbeddingHead,
    features: dict[str, tf.Tensor],
) -> dict[str, tf.Tensor]:
    return head(model.encode(features), features)


def _traced(function: functools.partial) -> Callable:
    """Returns a function that is traced for few shapes, without warnings.

    TensorFlow counts the traces of functions with the same code together, here
    those of several predictors; a partial has no code.
    """
    return tf.function(function, autograph=False, reduce_retracing=True)
