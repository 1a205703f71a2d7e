"""Outputs and gradients of untrained models by application."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import PretrainConfig, override
from albert_tf.inputs.input_pipeline import PretrainingBatches
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.records.shards import open_shards
from albert_tf.training.training_loss import pretraining_loss
from experiments.plan import Planner, Text
from experiments.programs import initialization
from experiments.scales import SCALES
from experiments.tables import TABLES
from experiments.units import KINDS, Job, pretraining_config


def test_similarity_is_the_mean_cosine_of_different_tokens():
    hidden = np.random.default_rng(0).normal(size=(7, 5)) + 1
    cosines = [
        a @ b / np.sqrt((a @ a) * (b @ b))
        for i, a in enumerate(hidden)
        for j, b in enumerate(hidden)
        if i != j
    ]
    assert initialization.token_similarity(hidden) == pytest.approx(
        np.mean(cosines)
    )


@pytest.fixture(scope="module")
def measured(directory, shards_dir):
    shards = open_shards(shards_dir, "train")
    scale = dataclasses.replace(
        SCALES["tiny"],
        vocab_size=shards.metadata["tokenizer"]["vocab_size"],
        max_seq_length=32,
    )
    _, *cells = Planner(scale, Text("books")).cells(
        TABLES["initialization"], [3]
    )
    found = {}
    for cell in cells:
        (unit,) = cell.units
        kind = KINDS["initialization"]
        job = Job(unit, directory)
        _, *arguments = kind.command(job)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(initialization, "DEPTHS", (1, 3))
            initialization.main(*arguments)
        for row in kind.figures(job)["depths"]:
            found[cell.row.name, row.pop("applications")] = row
    return (
        shards,
        pretraining_config(cells[1].measures["initialization"]),
        found,
    )


@pytest.mark.slow
def test_gradients_of_applications_sum_to_the_shared_one(measured):
    shards, row, found = measured
    measurement = found["scaled", 3]
    config = initialization.at_depth(row.model, 3)
    assert config.output_init_scale == pytest.approx(6**-0.5)
    keras.utils.set_random_seed(3)
    unshared = AlbertForPretraining(config)
    unshared.build()
    shared = AlbertForPretraining(
        override(PretrainConfig(model=config), {"sharing": "all"}).model
    )
    shared.build()
    # The first block's weights are drawn before those of the others.
    by_path = {v.path.split("/", 1)[1]: v for v in unshared.weights}
    for variable in shared.weights:
        variable.assign(by_path[variable.path.split("/", 1)[1]])
    batch = PretrainingBatches(
        shards,
        masking_config=PretrainConfig().masking,
        batch_size=32,
        seed=3,
        training=True,
    ).batch(0)
    training_loss = pretraining_loss(SENTENCE_OBJECTIVES["sop"])
    matrices = [
        v.value
        for v in shared.encoder.blocks[0].trainable_variables
        if len(v.shape) > 1
    ]
    with tf.GradientTape() as tape:
        outputs = shared(batch, training=False, output_hidden_states=True)
        losses = training_loss.losses(outputs, batch).values()
        loss = tf.add_n([total / weight for total, weight in losses])
    gradients = tape.gradient(loss, matrices)
    assert measurement["shared_gradient_norm"] == pytest.approx(
        float(tf.linalg.global_norm(gradients)), rel=1e-4
    )
    mask = batch["input_mask"].astype(bool)
    before, after = (x.numpy()[mask] for x in outputs["hidden_states"][-2:])
    assert measurement["output_change"][-1] == pytest.approx(
        np.sqrt(((after - before) ** 2).sum() / (before**2).sum()), rel=1e-4
    )


@pytest.mark.slow
def test_deep_unscaled_models_are_more_sensitive(measured):
    _, _, found = measured
    wide, scaled = found["wide", 3], found["scaled", 3]
    assert wide["sensitivity"] > 1.5 * scaled["sensitivity"]
    assert wide["token_similarity"][-1] > scaled["token_similarity"][-1]
    assert wide["sensitivity"] > 1.5 * found["wide", 1]["sensitivity"]
