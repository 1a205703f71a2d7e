"""Where each head of each layer attends to."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.modeling.models import AlbertModel


def attentions(
    model: AlbertModel, batch: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Returns the attention weights, `[layers, batch, heads, seq, seq]`."""
    features = {name: tf.constant(value) for name, value in batch.items()}
    outputs = model.encode(features, output_attentions=True)
    return np.stack([weights.numpy() for weights in outputs["attentions"]])


def mean_distance(weights: np.ndarray) -> np.ndarray:
    """Returns the mean attention distance in tokens, `[layers, heads]`.

    The mean over its tokens of the distance to what they attend to, by its
    weight. `weights` is `[layers, heads, seq, seq]`, without padding.
    """
    distances = _distances(weights.shape[-1])
    return np.einsum("lhij,ij->lh", weights, distances) / len(distances)


def mean_distances(
    model: AlbertModel, inputs: Iterable[Mapping[str, np.ndarray]]
) -> np.ndarray:
    """Returns the mean of `mean_distance` over the tokens of several texts.

    `inputs` are batches of one text each: the weights of many texts at once,
    `[layers, batch, heads, seq, seq]`, can take more memory than there is.
    """
    lengths, found = [], []
    for batch in inputs:
        lengths.append(batch["input_ids"].shape[1])
        found.append(mean_distance(attentions(model, batch)[:, 0]))
    return np.average(found, axis=0, weights=lengths)


def uniform_distance(lengths: Sequence[int]) -> float:
    """Returns the mean for a head that attends to all tokens alike."""
    found = [_distances(length).mean() for length in lengths]
    return float(np.average(found, weights=lengths))


def _distances(length: int) -> np.ndarray:
    """Returns the distance of every two places of a text, `[seq, seq]`."""
    places = np.arange(length)
    return np.abs(places[:, None] - places[None, :])
