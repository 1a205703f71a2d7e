"""How far each layer moves the states of tokens (paper, Figure 1)."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.config import sharing_plan
from albert_tf.modeling.models import AlbertModel


class LayerDistances(NamedTuple):
    """Means over tokens, `[layers]` each, or `[blocks]` of layers with several.

    `l2_distance` and `cosine_similarity` are between the input and the output
    of a layer; `num_tokens` is that of the text.
    """

    l2_distance: np.ndarray
    cosine_similarity: np.ndarray
    num_tokens: int


def distances(hidden_states: Sequence[np.ndarray]) -> np.ndarray:
    """Returns `[2, layers, tokens]`: distances and cosines of neighbours.

    `hidden_states` are the embeddings and each layer's output,
    `[tokens, hidden]`.
    """
    found = []
    for before, after in itertools.pairwise(hidden_states):
        norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
        found.append(
            (
                np.linalg.norm(after - before, axis=1),
                np.sum(before * after, axis=1) / np.maximum(norms, 1e-12),
            )
        )
    return np.array(found).swapaxes(0, 1)


def layer_distances(
    model: AlbertModel, batches: Iterable[Mapping[str, np.ndarray]]
) -> LayerDistances:
    """Returns the means over the tokens of all batches, without padding.

    A batch has at least `input_ids` and `input_mask`, `[batch, seq]`.
    """
    # A layer with inner_group_num blocks has as many outputs.
    sums = np.zeros((2, len(sharing_plan(model.config))))
    num_tokens = 0
    for batch in batches:
        features = {name: tf.constant(value) for name, value in batch.items()}
        outputs = model.encode(features, output_hidden_states=True)
        is_token = batch["input_mask"].astype(bool)
        states = [s.numpy()[is_token] for s in outputs["hidden_states"]]
        sums += distances(states).sum(axis=2)
        num_tokens += int(is_token.sum())
    distance, similarity = sums / num_tokens
    return LayerDistances(distance, similarity, num_tokens)
