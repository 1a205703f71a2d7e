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
class Probe:
    """A question about texts: texts or pairs of texts, and their labels."""

    name: str
    texts: Sequence[str | tuple[str, str]]
    labels: Sequence[int]


@dataclasses.dataclass(frozen=True)
class Probed:
    """Accuracies of a probe by layer, the embeddings first, and of guessing."""

    name: str
    accuracies: list[float]
    majority: float


def order_probe(texts: Sequence[str], seed: int) -> Probe:
    """Returns the question whether two neighbours are in their order."""
    swapped = np.random.default_rng(seed).random(len(texts) // 2) < 0.5
    pairs = list(zip(texts[::2], texts[1::2], strict=False))
    return Probe(
        "order of two neighbouring texts",
        [p[::-1] if s else p for p, s in zip(pairs, swapped, strict=True)],
        swapped.astype(int).tolist(),
    )


def length_probe(texts: Sequence[str]) -> Probe:
    """Returns the question whether a text is longer than the median."""
    lengths = np.array([len(text.split()) for text in texts])
    longer = lengths > np.median(lengths)
    return Probe("longer than the median", texts, longer.astype(int).tolist())


def source_probe(texts: Sequence[str], sources: Sequence[int]) -> Probe | None:
    """Returns the question which document a text is from.

    Of the documents with enough texts; None where these are not two.
    """
    counts = collections.Counter(sources)
    kept = [n for n, source in enumerate(sources) if counts[source] >= _ENOUGH]
    found = Probe(
        "document of the text",
        [texts[n] for n in kept],
        [sources[n] for n in kept],
    )
    return found if len(set(found.labels)) > 1 else None


def run_probe(
    probe: Probe, model: AlbertModel, tokenizer: Tokenizer, max_seq_length: int
) -> Probed:
    """Returns the cross-validated accuracy of a linear model by layer.

    It reads the mean state of the tokens.
    """
    # scikit-learn takes a second to import.
    from sklearn.model_selection import cross_val_score

    states = mean_states(model, tokenizer, probe.texts, max_seq_length)
    accuracies = []
    for of_layer in states:
        linear = linear_model()
        scores = cross_val_score(linear, of_layer, probe.labels, cv=_FOLDS)
        accuracies.append(float(scores.mean()))
    majority = float(np.bincount(probe.labels).max() / len(probe.labels))
    return Probed(probe.name, accuracies, majority)


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
