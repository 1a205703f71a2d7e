"""The formulas against models as they are built and as TensorFlow traces them.

And the paper's published numbers.
"""

import functools
import math

import pytest
import tensorflow as tf

from albert_tf.config import (
    SHARING,
    ModelConfig,
    PretrainConfig,
    override,
    preset,
)
from albert_tf.modeling.accounting import (
    PAPER_TABLES,
    encoder_flops,
    forward_terms,
    parameter_count,
    pretraining_head_weights,
    training_flops,
    with_pretraining_heads,
)
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
    AlbertModel,
)

# No size of a product is that of another, and none but the table of segments
# has 3 of anything: that one is a look-up and does not count.
TYPES = 3
SMALL = {
    "vocab_size": 31,
    "embedding_size": 7,
    "hidden_size": 10,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 23,
    "max_position_embeddings": 17,
    "type_vocab_size": TYPES,
}
BATCH, LENGTH, PREDICTIONS = 4, 11, 6
SHAPE = {
    "batch_size": BATCH,
    "seq_length": LENGTH,
    "num_predictions": PREDICTIONS,
}
ARCHITECTURES = {
    "shared": {},
    "no projection": {"embedding_size": 10},
    "a projection all the same": {
        "embedding_size": 10,
        "always_project_embeddings": True,
    },
    "groups of two blocks": {
        "num_hidden_layers": 2,
        "num_hidden_groups": 2,
        "inner_group_num": 2,
    },
    "uneven groups": {"num_hidden_groups": 2},
    "not shared": {"sharing": "none"},
}
PAPER_ROWS = [row for rows in PAPER_TABLES.values() for row in rows]


# --- FLOPs ------------------------------------------------------------------


def graphs_called(graph, operation):
    """Yields the graphs of the functions that an operation calls."""
    for name in operation.node_def.attr:
        attribute = operation.node_def.attr[name]
        if attribute.HasField("func"):
            yield graph._get_function(attribute.func.name).graph


def traced_flops(graph):
    """Returns the operations of all products in a graph, from their shapes."""
    total = 0
    for operation in graph.get_operations():
        total += sum(map(traced_flops, graphs_called(graph, operation)))
        if operation.type not in ("MatMul", "BatchMatMul", "BatchMatMulV2"):
            assert operation.type not in ("Einsum", "Conv2D", "While")
            continue
        flag = "transpose_a" if operation.type == "MatMul" else "adj_x"
        left = operation.inputs[0].shape.as_list()
        inner = left[-2] if operation.get_attr(flag) else left[-1]
        *batch, rows, columns = operation.outputs[0].shape.as_list()
        if TYPES not in (rows, inner, columns):
            total += 2 * math.prod(batch) * rows * inner * columns
    return total


def traced_forward(call):
    ids = tf.TensorSpec((BATCH, LENGTH), tf.int32)
    features = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), ids)
    features["masked_lm_positions"] = tf.TensorSpec(
        (BATCH, PREDICTIONS), tf.int32
    )
    return traced_flops(
        tf.function(call, autograph=False).get_concrete_function(features).graph
    )


def traced_training(model, **options):
    variables = [v.value for v in model.trainable_variables]

    def step(batch):
        with tf.GradientTape() as tape:
            outputs = model(batch, training=True, **options)
            loss = tf.add_n(
                [
                    tf.reduce_sum(tf.square(outputs[name]))
                    for name in ("masked_lm_logits", "sentence_order_logits")
                ]
            )
        return tape.gradient(loss, variables)

    return traced_forward(step)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "heads_only"),
    [
        *((name, False) for name in ARCHITECTURES),
        # Projections come before all blocks: they have no part in it.
        *((name, True) for name in ARCHITECTURES if "projection" not in name),
    ],
)
def test_a_step_has_the_counted_products(name, heads_only):
    config = override(ModelConfig(), SMALL | ARCHITECTURES[name])
    model = AlbertForPretraining(config)
    shape = SHAPE | {"read_positions_only": heads_only}
    forward = sum(forward_terms(config, **shape).values())
    call = functools.partial(model, heads_only=heads_only)
    assert traced_forward(call) == forward
    step = training_flops(config, **shape)
    assert traced_training(model, heads_only=heads_only) == step == 3 * forward


def test_an_encoder_has_no_heads():
    config = override(ModelConfig(), SMALL)
    shape = {"batch_size": BATCH, "seq_length": LENGTH}
    model = AlbertModel(config)
    assert traced_forward(model) == encoder_flops(
        config, **shape, read_positions_only=False
    )
    nothing = tf.zeros((BATCH, 0), tf.int32)
    assert traced_forward(
        functools.partial(model.encode, read_positions=nothing)
    ) == encoder_flops(config, **shape, read_positions_only=True)


def test_a_classifier_reads_the_first_position_alone():
    config = override(ModelConfig(), SMALL)
    model = AlbertForClassification(config, num_labels=5)
    encoder = encoder_flops(
        config,
        batch_size=BATCH,
        seq_length=LENGTH,
        read_positions_only=True,
    )
    found = traced_forward(functools.partial(model, heads_only=True))
    assert found == encoder + 2 * BATCH * config.hidden_size * 5


@pytest.mark.parametrize("read_positions_only", [False, True])
def test_fewer_applications_are_a_shallower_model(read_positions_only):
    shape = SHAPE | {"read_positions_only": read_positions_only}
    deep = override(ModelConfig(), SMALL)
    shallow = override(ModelConfig(), SMALL | {"num_hidden_layers": 2})
    assert forward_terms(deep, **shape, num_applications=2) == forward_terms(
        shallow, **shape
    )


# --- Parameters -------------------------------------------------------------


class EveryHead(AlbertModel):
    """An encoder with all the heads there are."""

    head_names = tuple(HEADS)


def weights(*layers):
    """Returns the number of different weights in layers, or in none."""
    variables = {
        id(variable): variable
        for layer in filter(None, layers)
        for variable in layer.trainable_variables
    }
    return sum(math.prod(v.shape) for v in variables.values())


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("changes", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_an_encoder_is_counted_part_by_part(changes, sharing):
    config = override(ModelConfig(), SMALL | {"sharing": sharing} | changes)
    encoder = AlbertEncoder(config)
    encoder.build()
    count, blocks = parameter_count(config), encoder.blocks
    assert count.embeddings == weights(encoder.embeddings)
    assert count.projection == weights(encoder.projection)
    assert count.attention == weights(*(block.attention for block in blocks))
    assert count.feed_forward == weights(*(b.feed_forward for b in blocks))
    assert count.pooler == weights(encoder.pooler)
    assert count.encoder == weights(encoder)


@pytest.mark.parametrize("embedding_size", [6, 10])
def test_heads_are_counted_one_by_one(embedding_size):
    changes = SMALL | {"embedding_size": embedding_size}
    config = override(ModelConfig(), changes)
    model = EveryHead(config, num_labels=5)
    counts = {name: HEADS[name].count_weights(config, 5) for name in HEADS}
    assert counts == {name: weights(h) for name, h in model.heads.items()}
    assert counts.items() >= pretraining_head_weights(config).items()
    assert parameter_count(config, counts).total == weights(model)


@pytest.mark.parametrize("row", PAPER_ROWS, ids=lambda row: row.name)
def test_all_published_numbers_but_two_are_explained(row):
    if row.name in ("ALBERT xlarge", "ALBERT xxlarge"):
        assert row.reading == ""
    elif row.model.sharing == "none":
        assert row.reading == "encoder without pooler, rounded"
    else:
        assert row.reading == "encoder, rounded"


# The encoder, and the heads of pretraining.
RELEASED = {
    "base": (11_683_584, 130_226),
    "large": (17_683_968, 163_506),
    "xlarge": (58_724_864, 296_626),
    "xxlarge": (222_595_584, 562_866),
}


@pytest.mark.parametrize("name", RELEASED)
def test_the_papers_sizes_have_their_parameters(name):
    encoder, heads = RELEASED[name]
    config = override(PretrainConfig(), preset(name)).model
    count = with_pretraining_heads(config)
    assert (count.encoder, count.total) == (encoder, encoder + heads)
