"""Which layer uses which weights, and how many weights that makes."""

import keras
import numpy as np
import pytest

from albert_tf.config import (
    SHARING,
    ModelConfig,
    PretrainConfig,
    override,
    preset,
)
from albert_tf.modeling.encoder import AlbertEncoder, sharing_plan
from albert_tf.modeling.models import AlbertForPretraining

SMALL = {
    "vocab_size": 23,
    "embedding_size": 6,
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}


@pytest.fixture
def shapes_only():
    """Lets models be made without memory for their weights."""
    with keras.StatelessScope(initialize_variables=False):
        yield
    # Forgets the variables that still wait for their values.
    keras.utils.clear_session()


def parameters(layer):
    return sum(int(np.prod(v.shape)) for v in layer.trainable_variables)


def plan_of(**changes):
    return sharing_plan(override(ModelConfig(), changes))


@pytest.mark.parametrize(
    ("sharing", "plan"),
    [
        ("all", [(0, 0), (0, 0), (1, 1), (1, 1)]),
        ("attention", [(0, 0), (0, 1), (1, 2), (1, 3)]),
        ("ffn", [(0, 0), (1, 0), (2, 1), (3, 1)]),
        ("none", [(0, 0), (1, 1), (2, 2), (3, 3)]),
    ],
)
def test_the_plan_of_four_layers_in_two_groups(sharing, plan):
    assert (
        plan_of(num_hidden_layers=4, num_hidden_groups=2, sharing=sharing)
        == plan
    )


@pytest.mark.parametrize(
    ("sharing", "plan"),
    [
        ("all", [(0, 0), (1, 1), (0, 0), (1, 1)]),
        ("attention", [(0, 0), (1, 1), (0, 2), (1, 3)]),
        ("ffn", [(0, 0), (1, 1), (2, 0), (3, 1)]),
        ("none", [(0, 0), (1, 1), (2, 2), (3, 3)]),
    ],
)
def test_the_plan_of_two_layers_of_two_blocks(sharing, plan):
    assert (
        plan_of(num_hidden_layers=2, inner_group_num=2, sharing=sharing) == plan
    )


def test_layers_that_do_not_divide_into_groups():
    assert [
        a for a, _ in plan_of(num_hidden_layers=5, num_hidden_groups=2)
    ] == [
        0,
        0,
        0,
        1,
        1,
    ]


@pytest.mark.parametrize(
    ("layers", "groups", "layer", "group"), [(22, 22, 15, 15), (44, 22, 30, 15)]
)
def test_groups_are_computed_in_integers(layers, groups, layer, group):
    # In floating point the quotient falls just short: 15 / 22 * 22 < 15.
    assert int(layer / layers * groups) == group - 1
    plan = plan_of(num_hidden_layers=layers, num_hidden_groups=groups)
    assert plan[layer] == (group, group)


@pytest.mark.parametrize("inner", [1, 2])
@pytest.mark.parametrize(
    ("layers", "groups"), [(1, 1), (3, 1), (3, 2), (3, 3), (12, 5)]
)
def test_how_many_parts_each_mode_has(layers, groups, inner):
    shared, own = groups * inner, layers * inner
    for sharing, counts in {
        "all": (shared, shared),
        "attention": (shared, own),
        "ffn": (own, shared),
        "none": (own, own),
    }.items():
        plan = plan_of(
            num_hidden_layers=layers,
            num_hidden_groups=groups,
            inner_group_num=inner,
            sharing=sharing,
        )
        assert len(plan) == layers * inner
        for ids, count in zip(zip(*plan, strict=True), counts, strict=True):
            # Numbered in the order of first use.
            assert list(dict.fromkeys(ids)) == list(range(count))


def test_all_shared_layers_are_one_block_applied_often():
    encoder = AlbertEncoder(override(ModelConfig(), SMALL))
    assert len(encoder.blocks) == 1
    assert encoder.applications == [0] * 3
    assert encoder.projection is not None


def test_no_projection_when_the_widths_are_equal():
    config = override(ModelConfig(), SMALL | {"embedding_size": 8})
    assert AlbertEncoder(config).projection is None


@pytest.mark.parametrize(
    ("name", "encoder", "heads"),
    [
        ("base", 11_683_584, 130_226),
        ("large", 17_683_968, 163_506),
        ("xlarge", 58_724_864, 296_626),
        ("xxlarge", 222_595_584, 562_866),
    ],
)
def test_the_papers_sizes_have_their_parameters(
    shapes_only, name, encoder, heads
):
    model = AlbertForPretraining(override(PretrainConfig(), preset(name)).model)
    assert parameters(model.encoder) == encoder
    assert parameters(model) == encoder + heads


@pytest.mark.parametrize(
    ("name", "sharing", "count"),
    [
        ("base", "attention", 63_647_232),
        ("base", "ffn", 37_686_528),
        ("base", "none", 89_650_176),
        ("large", "none", 307_397_120),
        ("xlarge", "attention", 830_806_528),
        ("xxlarge", "ffn", 961_063_424),
        ("xxlarge", "none", 2_437_773_824),
    ],
)
def test_sharing_less_costs_parameters(shapes_only, name, sharing, count):
    config = override(PretrainConfig(), preset(name) | {"sharing": sharing})
    assert parameters(AlbertForPretraining(config.model).encoder) == count


@pytest.mark.parametrize("sharing", SHARING)
def test_groups_and_blocks_multiply_parameters(sharing):
    def count(**changes):
        config = override(ModelConfig(), SMALL | changes)
        encoder = AlbertEncoder(config)
        encoder.build()
        return parameters(encoder)

    one = 4 * (8 * 8 + 8) + 2 * 8  # attention
    two = 8 * 12 + 12 + 12 * 8 + 8 + 2 * 8  # feed-forward
    rest = (23 + 2 + 16 + 2) * 6 + (6 * 8 + 8) + (8 * 8 + 8)
    for groups, inner in ((1, 1), (2, 1), (1, 2), (3, 2)):
        shared, own = groups * inner, 3 * inner
        attention = own if sharing in ("ffn", "none") else shared
        feed_forward = own if sharing in ("attention", "none") else shared
        assert (
            count(
                sharing=sharing,
                num_hidden_groups=groups,
                inner_group_num=inner,
            )
            == rest + attention * one + feed_forward * two
        )
