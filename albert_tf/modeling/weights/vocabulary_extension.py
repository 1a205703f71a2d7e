"""Adds pieces to a model's vocabulary."""

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import keras
import numpy as np

from albert_tf.modeling.models import AlbertModel

Model = TypeVar("Model", bound=AlbertModel)


def extend_vocabulary(model: Model, origins: Sequence[Sequence[int]]) -> Model:
    """Returns a copy of the model with a new piece for each row of `origins`.

    A row holds the ids of the pieces that the new one replaces. Its row of the
    word embeddings `[vocab, E]` and its output bias are the means of theirs,
    so that its logit of the masked LM is the mean of theirs too. The new
    pieces have the next ids.
    """
    old = model.config.vocab_size
    config = dataclasses.replace(model.config, vocab_size=old + len(origins))
    larger = type(model).from_config(model.get_config() | {"config": config})
    for source, target in zip(model.weights, larger.weights, strict=True):
        value = keras.ops.convert_to_numpy(source)
        if source.shape != target.shape:
            rows = [value[ids].mean(axis=0) for ids in map(list, origins)]
            value = np.concatenate([value, np.stack(rows)])
        target.assign(value)
    return larger
