"""The formulas against the products that TensorFlow traces of our models."""

import functools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import ModelConfig, override
from albert_tf.modeling.arithmetic import (
    encoder_flops,
    forward_flops,
    forward_terms,
    training_flops,
)
from albert_tf.modeling.models import AlbertForPretraining, AlbertModel

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
    "not shared": {"sharing": "none"},
}


def graphs_called(graph, operation):
    """Yields the graphs of the functions that an operation calls."""
    for name in operation.node_def.attr:
        attribute = operation.node_def.attr[name]
        if attribute.HasField("func"):
            yield graph._get_function(attribute.func.name).graph


def traced_flops(graph):
    """The operations of all products in a graph, from their shapes."""
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


def features():
    shape = (BATCH, LENGTH)
    return {
        "input_ids": tf.zeros(shape, tf.int32),
        "input_mask": tf.ones(shape, tf.int32),
        "segment_ids": tf.zeros(shape, tf.int32),
        "masked_lm_positions": tf.zeros((BATCH, PREDICTIONS), tf.int32),
    }


def traced_forward(model, **options):
    function = tf.function(lambda batch: model(batch, **options))
    return traced_flops(function.get_concrete_function(features()).graph)


def traced_training(model, **options):
    variables = [v.value for v in model.trainable_variables]

    @tf.function
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

    return traced_flops(step.get_concrete_function(features()).graph)


@pytest.mark.parametrize("changes", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_a_pass_has_the_products_that_are_counted(changes):
    config = override(ModelConfig(), SMALL | changes)
    keras.utils.set_random_seed(1)
    model = AlbertForPretraining(config)
    forward = forward_flops(config, **SHAPE, read_positions_only=False)
    assert traced_forward(model) == forward
    training = training_flops(config, **SHAPE, read_positions_only=False)
    assert traced_training(model) == training


@pytest.mark.parametrize("changes", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_what_no_head_reads_is_left_out_of_the_last_block(changes):
    config = override(ModelConfig(), SMALL | changes)
    keras.utils.set_random_seed(1)
    model = AlbertForPretraining(config)
    forward = forward_flops(config, **SHAPE, read_positions_only=True)
    assert traced_forward(model, heads_only=True) == forward
    training = training_flops(config, **SHAPE, read_positions_only=True)
    assert traced_training(model, heads_only=True) == training


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


def test_the_last_block_can_be_left_to_what_is_read():
    """Counted by hand, with NumPy's shapes."""
    config = override(ModelConfig(), SMALL)
    width, inner = config.hidden_size, config.intermediate_size
    everywhere = np.zeros((BATCH * LENGTH, width))
    read = np.zeros((BATCH * (PREDICTIONS + 1), width))

    def block(states):
        rows = len(states)
        return {
            "query": 2 * rows * width**2,
            "key_value": 2 * 2 * len(everywhere) * width**2,
            "attention": 2 * 2 * rows * LENGTH * width,
            "attention_output": 2 * rows * width**2,
            "feed_forward": 2 * 2 * rows * width * inner,
        }

    terms = forward_terms(config, **SHAPE, read_positions_only=True)
    for name, count in block(everywhere).items():
        assert terms[name] == 2 * count + block(read)[name], name
    whole = forward_terms(config, **SHAPE, read_positions_only=False)
    for name in ("projection", "pooler", "masked_lm", "sentence_order"):
        assert terms[name] == whole[name]
    assert list(terms) == list(whole)


@pytest.mark.parametrize("read_positions_only", [False, True])
def test_fewer_applications_are_a_shallower_model(read_positions_only):
    shape = SHAPE | {"read_positions_only": read_positions_only}
    deep = override(ModelConfig(), SMALL)
    shallow = override(ModelConfig(), SMALL | {"num_hidden_layers": 2})
    for count in (forward_flops, training_flops):
        assert count(deep, **shape, num_applications=2) == count(
            shallow, **shape
        )
        assert count(deep, **shape, num_applications=3) == count(deep, **shape)


def test_a_step_of_albert_base_at_128_tokens():
    """12 layers of 8 x 128 tokens: about 0.54 TFLOP."""
    step = training_flops(
        ModelConfig(),
        batch_size=8,
        seq_length=128,
        num_predictions=19,
        read_positions_only=False,
    )
    # 24 H^2 + 4 H S for a token in a block, and small things beside.
    blocks = 3 * 12 * 1024 * (24 * 768**2 + 4 * 768 * 128)
    assert blocks < step < 1.02 * blocks
