"""Where each head of each layer attends to."""

from collections.abc import Mapping

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


def mean_distance(weights: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Returns how far heads look, in tokens, `[layers, heads]`.

    The mean over real tokens of the distance to what they attend to, by its
    weight. `weights` is `[layers, batch, heads, seq, seq]`, `mask` `[batch,
    seq]`.
    """
    places = np.arange(weights.shape[-1])
    distances = np.abs(places[:, None] - places[None, :])
    by_token = np.einsum("lbhij,ij->lbhi", weights, distances)
    return np.einsum("lbhi,bi->lh", by_token, mask) / mask.sum()


def uniform_distance(mask: np.ndarray) -> float:
    """Returns `mean_distance` of a head that attends to all tokens alike."""
    alike = mask[:, None, :] / mask.sum(axis=1)[:, None, None]
    weights = np.broadcast_to(alike, (*mask.shape, mask.shape[1]))
    return float(mean_distance(weights[None, :, None], mask)[0, 0])
