"""Outputs and gradients of untrained models, by application of the block.

A shared block is applied again and again, so its outputs compound and its
gradients add up. Measured on a model whose layers have weights of their own,
all equal to those of the first: it computes the same function, and has a
gradient for each application.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import ModelConfig, PretrainConfig, override
from albert_tf.inputs.input_pipeline import (
    PretrainingBatches,
    sentence_objective,
)
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.records.shards import ShardSet
from albert_tf.training.training_loss import pretraining_loss
from benchmarks.recipe import BASE

DEPTHS = (2, 4, 6, 12)
# Settings of ModelConfig by name. "scaled" has output kernels that are
# 1 / sqrt(2 * applications) as large, as GPT-2's.
INITIALIZATIONS: dict[str, Mapping[str, Any]] = {
    "released": {"initializer_range": 0.02, "position_init": "normal"},
    "wide": {"initializer_range": 0.05, "position_init": "sinusoidal"},
    "scaled": {"initializer_range": 0.05, "position_init": "sinusoidal"},
}
_BATCH_SIZE = 32
# Relative size of the random step that measures the sensitivity.
_STEP = 0.01


@dataclasses.dataclass(frozen=True)
class Measurement:
    """An untrained model: a row of INITIALIZATIONS, a number of applications.

    Attributes:
        output_change: of each application, ‖output - input‖ / ‖input‖.
        token_similarity: after each application, the mean cosine of two
            tokens' hidden states.
        gradient_norm: of the loss by the block's matrices, at each
            application.
        shared_gradient_norm: of their sum.
        sensitivity: relative change of the last output for a random relative
            change of the shared matrices, divided by that change.
    """

    initialization: str
    depth: int
    output_change: list[float]
    token_similarity: list[float]
    gradient_norm: list[float]
    shared_gradient_norm: float
    sensitivity: float


def configuration(
    initialization: str, depth: int, vocab_size: int, seq_length: int
) -> ModelConfig:
    """Returns the model to measure: the recipe search's, not shared."""
    scaled = initialization == "scaled"
    changes = {
        **BASE,
        **INITIALIZATIONS[initialization],
        "num_hidden_layers": depth,
        "output_init_scale": 1 / math.sqrt(2 * depth) if scaled else 1.0,
        "vocab_size": vocab_size,
        "max_position_embeddings": seq_length,
        "sharing": "none",
    }
    return override(PretrainConfig(), changes).model


def measure(shards: ShardSet, seed: int) -> list[Measurement]:
    """Returns each initialization's measurements, on the first batch."""
    source = PretrainingBatches(
        shards,
        masking_config=PretrainConfig().masking,
        batch_size=_BATCH_SIZE,
        seed=seed,
        training=True,
    )
    batch = {k: tf.constant(v) for k, v in source.batch(0).items()}
    training_loss = pretraining_loss(sentence_objective(shards))
    measurements = []
    for name in INITIALIZATIONS:
        for depth in DEPTHS:
            config = configuration(
                name,
                depth,
                shards.metadata["tokenizer"]["vocab_size"],
                source.max_seq_length,
            )
            keras.utils.set_random_seed(seed)
            model = AlbertForPretraining(config)
            model.build()
            found = _measure(model, training_loss, batch, seed)
            measurements.append(Measurement(name, depth, **found))
    return measurements


def _measure(
    model: AlbertForPretraining, training_loss: Any, batch: dict, seed: int
) -> dict[str, Any]:
    blocks = model.encoder.blocks
    for block in blocks[1:]:
        block.set_weights(blocks[0].get_weights())
    matrices = [
        [v.value for v in block.trainable_variables if len(v.shape) > 1]
        for block in blocks
    ]
    with tf.GradientTape() as tape:
        outputs = model(batch, training=False, output_hidden_states=True)
        losses = training_loss.losses(outputs, batch).values()
        loss = tf.add_n([total / weight for total, weight in losses])
    gradients = tape.gradient(loss, matrices)
    mask = batch["input_mask"].numpy().astype(bool)
    hidden = [state.numpy()[mask] for state in outputs["hidden_states"]]
    generator = np.random.default_rng(seed)
    steps = [
        _STEP * np.std(v) * generator.standard_normal(v.shape, np.float32)
        for v in matrices[0]
    ]
    for variables in matrices:
        for variable, step in zip(variables, steps, strict=True):
            variable.assign_add(step)
    outputs = model(batch, training=False, output_hidden_states=True)
    moved = outputs["hidden_states"][-1].numpy()[mask]
    return {
        "output_change": [
            _relative_change(new, old)
            for old, new in itertools.pairwise(hidden)
        ],
        "token_similarity": [token_similarity(h) for h in hidden[1:]],
        "gradient_norm": [float(tf.linalg.global_norm(g)) for g in gradients],
        "shared_gradient_norm": float(
            tf.linalg.global_norm(
                [tf.add_n(same) for same in zip(*gradients, strict=True)]
            )
        ),
        "sensitivity": _relative_change(moved, hidden[-1]) / _STEP,
    }


def _relative_change(new: np.ndarray, old: np.ndarray) -> float:
    return float(np.linalg.norm(new - old) / np.linalg.norm(old))


def token_similarity(hidden: np.ndarray) -> float:
    """Returns the mean cosine of two different rows, `[tokens, hidden]`."""
    number = len(hidden)
    unit = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    total = float(np.sum(unit.sum(axis=0) ** 2))
    return (total - number) / (number * (number - 1))
