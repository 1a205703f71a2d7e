"""Counts by formula against models as they are built, and known numbers."""

import math
import random

import keras
import pytest

from albert_tf.config import (
    SHARING,
    ModelConfig,
    PretrainConfig,
    UserError,
    override,
    preset,
)
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.models import AlbertForPretraining, AlbertModel
from albert_tf.modeling.parameter_count import (
    HEAD_WEIGHTS,
    PRETRAINING_HEADS,
    parameter_count,
)

SMALL = {
    "vocab_size": 23,
    "embedding_size": 6,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}


class EveryHead(AlbertModel):
    """An encoder with all the heads there are."""

    head_names = tuple(HEADS)


@pytest.fixture
def shapes_only():
    """Lets models be made without memory for their weights."""
    with keras.StatelessScope(initialize_variables=False):
        yield
    # Forgets the variables that still wait for their values.
    keras.utils.clear_session()


def weights(*layers):
    """Returns the number of different weights in layers, or in none."""
    variables = {
        id(variable): variable
        for layer in layers
        if layer
        for variable in layer.trainable_variables
    }
    return sum(math.prod(v.shape) for v in variables.values())


def built_parts(encoder):
    return {
        "embeddings": weights(encoder.embeddings),
        "projection": weights(encoder.projection),
        "attention": weights(*(block.attention for block in encoder.blocks)),
        "feed_forward": weights(
            *(block.feed_forward for block in encoder.blocks)
        ),
        "pooler": weights(encoder.pooler),
    }


def counted_parts(count):
    return {
        "embeddings": count.embeddings,
        "projection": count.projection,
        "attention": count.attention,
        "feed_forward": count.feed_forward,
        "pooler": count.pooler,
    }


def random_config(rng, sharing):
    heads = rng.randint(1, 3)
    hidden = heads * rng.randint(1, 4)
    layers = rng.randint(1, 5)
    return ModelConfig(
        vocab_size=rng.randint(6, 40),
        embedding_size=rng.choice([hidden, rng.randint(1, 9)]),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_hidden_groups=rng.randint(1, layers),
        inner_group_num=rng.randint(1, 3),
        num_attention_heads=heads,
        intermediate_size=rng.randint(1, 15),
        max_position_embeddings=rng.randint(4, 20),
        type_vocab_size=rng.randint(2, 5),
        sharing=sharing,
        always_project_embeddings=rng.random() < 0.3,
    )


@pytest.mark.parametrize("sharing", SHARING)
def test_an_encoder_is_counted_part_by_part(sharing, shapes_only):
    rng = random.Random(f"encoders sharing {sharing}")
    for number in range(8):
        config = random_config(rng, sharing)
        pooler = number != 5
        encoder = AlbertEncoder(config, pooler=pooler)
        encoder.build()
        count = parameter_count(config, pooler=pooler)
        assert counted_parts(count) == built_parts(encoder), config
        assert count.encoder == count.total == weights(encoder)


@pytest.mark.parametrize("width", [6, 8])
def test_heads_are_counted_one_by_one(width, shapes_only):
    config = override(ModelConfig(), SMALL | {"embedding_size": width})
    model = EveryHead(config, num_labels=5)
    count = parameter_count(config, tuple(HEAD_WEIGHTS), num_labels=5)
    assert count.heads == {
        name: weights(head) for name, head in model.heads.items()
    }
    assert count.total == weights(model)
    assert count.encoder == weights(model.encoder)


def test_heads_in_numbers():
    config = override(ModelConfig(), SMALL)
    assert parameter_count(config, tuple(HEAD_WEIGHTS), 5).heads == {
        "masked_lm": (8 * 6 + 6) + (6 + 6) + 23,
        "sentence_order": 8 * 2 + 2,
        "classification": 8 * 5 + 5,
        "regression": 8 + 1,
        "multiple_choice": 8 + 1,
        "token_classification": 8 * 5 + 5,
        "span": 8 * 2 + 2,
        "answerable_span": (8 + 1)
        + (16 * 8 + 8)
        + (8 + 8)
        + (8 + 1)
        + (16 * 8 + 8)
        + 8,
        "sentence_embedding": 0,
    }


def model_of(name, **changes):
    return override(PretrainConfig(), preset(name) | changes).model


# The encoder in the four modes of sharing, and the heads of pretraining.
RELEASED = {
    "base": ((11_683_584, 63_647_232, 37_686_528, 89_650_176), 130_226),
    "large": ((17_683_968, 210_786_816, 114_294_272, 307_397_120), 163_506),
    "xlarge": (
        (58_724_864, 830_806_528, 444_883_456, 1_216_965_120),
        296_626,
    ),
    "xxlarge": (
        (222_595_584, 1_699_305_984, 961_063_424, 2_437_773_824),
        562_866,
    ),
}


@pytest.mark.parametrize("name", RELEASED)
def test_the_papers_sizes_have_their_parameters(name):
    encoders, heads = RELEASED[name]
    for sharing, encoder in zip(
        ("all", "attention", "ffn", "none"), encoders, strict=True
    ):
        config = model_of(name, sharing=sharing)
        count = parameter_count(config, PRETRAINING_HEADS)
        assert (count.encoder, count.total) == (encoder, encoder + heads)


def test_full_sizes_are_built_as_counted(shapes_only):
    for name, sharing in (
        ("base", "ffn"),
        ("large", "all"),
        ("xxlarge", "attention"),
        ("bert_base", "none"),
    ):
        config = model_of(name, sharing=sharing)
        model = AlbertForPretraining(config)
        count = parameter_count(config, PRETRAINING_HEADS)
        assert weights(model) == count.total
        assert built_parts(model.encoder) == counted_parts(count)


def test_the_factorization_that_the_paper_works_out():
    # 30,000 pieces, H = 1,024: 30,720,000 weights, or 3,971,072 with E = 128.
    wide = parameter_count(model_of("large", embedding_size=1024))
    narrow = parameter_count(model_of("large"))
    others = 512 + 2 + 2  # Positions, segments, scale and offset.
    bias = 1024
    assert wide.embeddings + wide.projection == 30_720_000 + others * 1024
    assert (
        narrow.embeddings + narrow.projection == 3_971_072 + others * 128 + bias
    )


def test_an_unknown_head_is_refused():
    with pytest.raises(UserError, match="head='qa' is not one of masked_lm, s"):
        parameter_count(ModelConfig(), ("masked_lm", "qa"))
