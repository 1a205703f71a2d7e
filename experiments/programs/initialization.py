"""Outputs and gradients of untrained models, by application of the block.

python -m experiments.programs.initialization SETTINGS.json SHARDS OUTPUT.json

A shared block is applied again and again, so its outputs compound and its
gradients add up. Measured on a model whose layers have weights of their own,
all equal to those of the first: it computes the same function, and has a
gradient for each application.
"""

import dataclasses
import itertools
import math
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import ModelConfig, PretrainConfig, from_dict
from albert_tf.inputs.input_pipeline import (
    PretrainingBatches,
    sentence_objective,
)
from albert_tf.io.json_files import read_json, write_json
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.records.shards import ShardSet, open_shards
from albert_tf.training.training_loss import pretraining_loss

DEPTHS = (2, 4, 6, 12)
_BATCH_SIZE = 32
# Relative size of the random step that measures the sensitivity.
_STEP = 0.01


def main(settings: str, data: str, output: str) -> None:
    """Writes the measurements of a model's settings."""
    values = read_json(settings)["config"]
    config = from_dict(PretrainConfig, values, settings)
    write_json(output, measure(config, open_shards(data, "train")))


def measure(config: PretrainConfig, shards: ShardSet) -> dict[str, Any]:
    """Returns measurements at several depths, on the first batch.

    For each of `depths`, by application: `output_change`, ‖output - input‖ /
    ‖input‖; `token_similarity`, the mean cosine of two tokens' hidden states;
    `gradient_norm`, of the loss by the block's matrices. And of all:
    `shared_gradient_norm`, of their sum; `sensitivity`, the relative change of
    the last output for a random relative change of the shared matrices,
    divided by that change.
    """
    seed = config.training.seed
    source = PretrainingBatches(
        shards,
        masking_config=config.masking,
        batch_size=_BATCH_SIZE,
        seed=seed,
        training=True,
    )
    batch = {k: tf.constant(v) for k, v in source.batch(0).items()}
    training_loss = pretraining_loss(sentence_objective(shards))
    rows = []
    for depth in DEPTHS:
        keras.utils.set_random_seed(seed)
        model = AlbertForPretraining(at_depth(config.model, depth))
        model.build()
        found = _measure(model, training_loss, batch, seed)
        rows.append({"applications": depth, **found})
    return {"depths": rows}


def at_depth(config: ModelConfig, depth: int) -> ModelConfig:
    """Returns a model of `depth` layers that share nothing.

    Output kernels that are made small for a depth are smaller in a deeper
    model, by the root of the depths' ratio.
    """
    scale = config.output_init_scale
    if scale < 1:
        scale *= math.sqrt(config.num_hidden_layers / depth)
    return dataclasses.replace(
        config,
        num_hidden_layers=depth,
        output_init_scale=scale,
        sharing="none",
    )


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


if __name__ == "__main__":
    main(*sys.argv[1:])
