"""Vectors of texts of any length, by a model directory."""

from collections.abc import Sequence

import numpy as np

from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
)
from albert_tf.prediction.predictor import Predictor
from albert_tf.search.ranking import normalized


class Embedder:
    """A model's embeddings as vectors of texts.

    Attributes:
        tokenizer: of the model.
        max_seq_length: the longest input that the model reads at once.
        description: what an index records of the model.
    """

    def __init__(self, model_dir: str, batch_size: int = 64) -> None:
        loaded = load_model_directory(model_dir)
        self._predictor = Predictor(loaded, batch_size)
        self.tokenizer = loaded.tokenizer
        self.max_seq_length = loaded.max_seq_length
        self.description = {
            "weights": find_initial_weights(model_dir).fingerprint,
            "tokenizer": loaded.tokenizer.fingerprint,
        }
        if self._predictor.pooling != "mean":
            self.description["pooling"] = self._predictor.pooling

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Returns vectors `[texts, H]`, float32 of length 1.

        What the model cannot read at once is read in parts, whose vectors'
        mean counts.
        """
        parts, owners = [], []
        for number, ids in enumerate(self.tokenizer.encode_batch(list(texts))):
            room = self.max_seq_length - 2
            for first in range(0, max(len(ids), 1), room):
                parts.append(ids[first : first + room])
                owners.append(number)
        vectors = normalized(self._predictor.vectors(parts))
        total = np.zeros((len(texts), vectors.shape[1]), np.float32)
        np.add.at(total, owners, vectors)
        return normalized(total)
