"""Measurements of pretrained models: other depths than they learned with."""

import dataclasses

import numpy as np
import pytest
from training_fixtures import SMALL_MODEL

from albert_tf.config import ModelConfig, override
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.records.shards import open_shards
from experiments import measurements


@pytest.mark.slow
def test_a_block_is_applied_more_often_than_it_was_trained(
    shards_dir, tiny_tokenizer, monkeypatch
):
    monkeypatch.setattr(measurements, "DEPTHS", (1, 3))
    config = override(
        ModelConfig(),
        SMALL_MODEL | {"vocab_size": tiny_tokenizer.vocab_size},
    )
    model = AlbertForPretraining(
        dataclasses.replace(config, num_hidden_layers=2)
    )
    model.build()
    loaded = LoadedModel(model, tiny_tokenizer, 32)
    once, thrice = measurements._any_depth(
        loaded, open_shards(shards_dir, "eval")
    )["depths"]
    assert thrice["applications"] == 3
    assert thrice["flops"] > once["flops"]
    assert thrice["masked_lm_loss"] != once["masked_lm_loss"]
    assert np.isfinite(thrice["masked_lm_loss"])
