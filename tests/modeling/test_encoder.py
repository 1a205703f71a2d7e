"""Which layer uses which weights, and what the encoder gives on request."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import (
    DROPOUT,
    SMALL,
    NumpyAlbert,
    numpy_dropout,
    numpy_keys,
    random_features,
    randomise,
)

from albert_tf.config import REMAT, ModelConfig, override, sharing_plan
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import AlbertForPretraining, AlbertModel


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
    encoder = AlbertEncoder(SMALL)
    assert len(encoder.blocks) == 1
    assert encoder.applications == [0] * 3
    assert encoder.projection is not None


def test_no_projection_when_the_widths_are_equal():
    config = override(SMALL, {"embedding_size": 8})
    assert AlbertEncoder(config).projection is None


# --- Hidden states and attention maps -------------------------------------


@pytest.mark.parametrize("remat", REMAT)
def test_hidden_states_and_attentions_equal_numpys(remat):
    changes = DROPOUT | {"inner_group_num": 2, "sharing": "ffn"}
    config = override(SMALL, changes)
    model = randomise(AlbertModel(config, remat=remat))
    features = random_features(config)
    numbers = np.arange(3)
    plain = model(features)
    assert set(plain) == {"sequence_output", "pooled_output"}
    asked = {"output_hidden_states": True, "output_attentions": True}
    for training in (False, True):
        keys = example_keys(3, np.int64(4), numbers)
        outputs = model(features, keys, training=training, **asked)
        drop = numpy_dropout(numpy_keys(3, 4, numbers))
        oracle = NumpyAlbert(model, *([drop] if training else []))
        oracle(features)
        for name, count in (("hidden_states", 7), ("attentions", 6)):
            expected = getattr(oracle, name)
            assert len(outputs[name]) == len(expected) == count
            for ours, theirs in zip(outputs[name], expected, strict=True):
                assert ours.shape == theirs.shape
                np.testing.assert_allclose(ours, theirs, atol=3e-5)
        np.testing.assert_array_equal(
            outputs["hidden_states"][-1], outputs["sequence_output"]
        )
    one = model(features, output_attentions=True)
    assert set(one) == {*plain, "attentions"}
    one = model(features, output_hidden_states=True)
    assert set(one) == {*plain, "hidden_states"}
    np.testing.assert_array_equal(one["pooled_output"], plain["pooled_output"])


def test_inference_casts_a_shared_matrix_once():
    model = AlbertForPretraining(
        SMALL, dtype=keras.DTypePolicy("mixed_bfloat16")
    )
    features = random_features(SMALL)
    encode = tf.function(lambda: model.encode(features, training=False))
    graph = encode.get_concrete_function().graph
    shape = list(model.encoder.blocks[0].feed_forward.intermediate.kernel.shape)
    casts = [
        operation
        for operation in graph.get_operations()
        if operation.type == "Cast"
        and operation.outputs[0].dtype == "bfloat16"
        and operation.outputs[0].shape.as_list() == shape
    ]
    assert len(casts) == 1
