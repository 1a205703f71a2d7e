"""Probes: what a linear model reads off the frozen states of each layer."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.modeling.models import AlbertModel
from albert_tf.text.tokenizer_base import Tokenizer

_BATCH_SIZE = 32
_FOLDS = 5
# Texts of a document, two for each part of the cross-validation.
_ENOUGH = 2 * _FOLDS


@dataclasses.dataclass(frozen=True)
class Probed:
    """Accuracies of a probe by layer, the embeddings first, and of guessing."""

    name: str
    accuracies: list[float]
    majority: float


def neighbours_in_order(
    texts: Sequence[str], seed: int
) -> tuple[list[tuple[str, str]], list[int]]:
    """Returns pairs of neighbouring texts, and 1 for those that are swapped."""
    swapped = np.random.default_rng(seed).random(len(texts) // 2) < 0.5
    pairs = zip(texts[::2], texts[1::2], strict=False)
    return (
        [p[::-1] if s else p for p, s in zip(pairs, swapped, strict=False)],
        swapped.astype(int).tolist(),
    )


def longer_than_the_median(texts: Sequence[str]) -> list[int]:
    """Returns 1 for each text with more words than the median, else 0."""
    lengths = np.array([len(text.split()) for text in texts])
    return (lengths > np.median(lengths)).astype(int).tolist()


def in_long_documents(documents: Sequence[int]) -> list[int]:
    """Returns the numbers of the texts whose document has enough of them."""
    counts = collections.Counter(documents)
    return [n for n, d in enumerate(documents) if counts[d] >= _ENOUGH]


def can_be_probed(labels: Sequence[int]) -> bool:
    """Returns whether each part of the cross-validation has two labels."""
    counts = collections.Counter(labels).values()
    return len(counts) > 1 and min(counts) >= _FOLDS


def run_probe(name: str, states: np.ndarray, labels: Sequence[int]) -> Probed:
    """Returns the cross-validated accuracy of a linear model by layer.

    Args:
        name: what is asked of each text.
        states: its mean states, `[layers + 1, texts, hidden]`.
        labels: the right answers, which `can_be_probed`.
    """
    # scikit-learn takes a second to import.
    from sklearn.model_selection import cross_val_score

    accuracies = [
        float(cross_val_score(linear_model(), s, labels, cv=_FOLDS).mean())
        for s in states
    ]
    majority = float(np.bincount(labels).max() / len(labels))
    return Probed(name, accuracies, majority)


def linear_model() -> Any:
    """Returns the linear model of all probes, of scikit-learn."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        StandardScaler(), LogisticRegression(C=0.01, max_iter=200)
    )


def mean_states(
    model: AlbertModel,
    tokenizer: Tokenizer,
    texts: Sequence[str | tuple[str, str]],
    max_seq_length: int,
) -> np.ndarray:
    """Returns `[layers + 1, texts, hidden]`: the embeddings, every layer."""
    found = []
    for start in range(0, len(texts), _BATCH_SIZE):
        batch = tokenizer(
            texts[start : start + _BATCH_SIZE], max_seq_length=max_seq_length
        )
        features = {name: tf.constant(value) for name, value in batch.items()}
        states = model.encode(features, output_hidden_states=True)
        mask = batch["input_mask"][:, :, None].astype(np.float32)
        found.append(
            [
                (state.numpy() * mask).sum(axis=1) / mask.sum(axis=1)
                for state in states["hidden_states"]
            ]
        )
    return np.concatenate(found, axis=1)
