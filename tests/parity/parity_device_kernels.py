"""Kernels of JAX within TensorFlow's program: as attention in plain operations.

On this machine's CPU JAX's own attention takes the place of cuDNN's, and Pallas
is interpreted; what the step's program calls on a GPU or TPU is read in its
StableHLO.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax.experimental.pallas import tpu as pltpu
from numpy_albert import SMALL

from albert_tf.config import override
from albert_tf.modeling.attention import attend, mask_to_logits
from albert_tf.modeling.device_kernels import (
    KERNELS,
    cudnn_attention,
    kernel_attention,
    pad_to_blocks,
)
from albert_tf.modeling.models import AlbertForPretraining

# Tokens of each row: all, a part, holes, one, none.
ROWS = 5
SIZES = [(12, 12), (7, 7), (130, 21), (16, 3)]
# JAX multiplies no float16 in its own attention on a CPU.
TOLERANCES = {"float32": 1e-5, "bfloat16": 0.05}


@pytest.fixture
def on_a_cpu(monkeypatch):
    """The row of cuDNN with JAX's own attention in place of the kernel."""
    row = KERNELS["cudnn"]._replace(
        function=functools.partial(cudnn_attention, implementation="xla"),
        platform="cpu",
        precisions=("float32", "float64", "bfloat16"),
    )
    monkeypatch.setitem(KERNELS, "cudnn", row)


def inputs(length, count, dtype, heads=2, size=8):
    rng = np.random.default_rng(length)
    query = rng.normal(size=(ROWS, count, heads, size))
    key, value = rng.normal(size=(2, ROWS, length, heads, size))
    mask = np.zeros((ROWS, length))
    mask[0] = 1
    mask[1, : length // 2] = 1
    mask[2, 1::3] = 1
    mask[3, 0] = 1
    states = [tf.cast(x, dtype) for x in (query, key, value)]
    return states, mask_to_logits(mask, dtype)


def results(function, states, mask_logits):
    """Returns the context and its gradients by queries, keys and values."""
    with tf.GradientTape() as tape:
        tape.watch(states)
        context = function(*states, mask_logits)
        loss = tf.reduce_sum(context**3)
    return context, *tape.gradient(loss, states)


def expected_results(states, mask_logits):
    """Returns those of plain operations in float64.

    In fewer digits a row without tokens loses its logits beside the mask's.
    """

    def plain(query, *others):
        positions = tf.range(query.shape[1])[None]
        return attend(query, *others, positions, lambda weights, _: weights)[0]

    wide = [tf.cast(x, "float64") for x in states]
    return results(plain, wide, tf.cast(mask_logits, "float64"))


def assert_equal_results(found, expected, dtype):
    tolerance = TOLERANCES[dtype]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(
            tf.cast(one, "float64"), other, rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [*((sizes, "float32") for sizes in SIZES), ((7, 7), "bfloat16")],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_context_and_gradients_are_those_of_plain_operations(
    on_a_cpu, sizes, dtype, compiled
):
    states, mask_logits = inputs(*sizes, dtype)
    run = tf.function(
        functools.partial(
            results, functools.partial(kernel_attention, "cudnn")
        ),
        jit_compile=compiled,
        autograph=False,
    )
    expected = expected_results(states, mask_logits)
    assert_equal_results(run(states, mask_logits), expected, dtype)


def test_rows_without_tokens_attend_as_if_all_were(on_a_cpu):
    states, mask_logits = inputs(12, 12, "bfloat16")
    found = kernel_attention("cudnn", *states, mask_logits)
    whole = kernel_attention("cudnn", *states, tf.zeros_like(mask_logits))
    np.testing.assert_array_equal(found[-1], whole[-1])


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        ((128, 128), "float32"),
        ((130, 21), "float32"),
        ((130, 21), "bfloat16"),
    ],
)
def test_pallas_kernel_equals_plain_operations(sizes, dtype):
    states, mask_logits = inputs(*sizes, dtype)
    expected = expected_results(states, mask_logits)
    padded = pad_to_blocks(KERNELS["pallas"], *states, mask_logits)
    *others, mask = (jnp.asarray(x.numpy()) for x in padded)

    def loss(*states):
        context = KERNELS["pallas"].function(*states, mask)[:, : sizes[1]]
        return jnp.sum(context**3), context

    with pltpu.force_tpu_interpret_mode():
        gradients, context = jax.grad(loss, (0, 1, 2), has_aux=True)(*others)
    gradients = [
        x[:, : y.shape[1]] for x, y in zip(gradients, states, strict=True)
    ]
    found = [tf.constant(np.asarray(x)) for x in (context, *gradients)]
    assert_equal_results(found, expected, dtype)


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("cudnn", ["__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"]),
        ("pallas", ["tpu_custom_call"]),
    ],
)
def test_the_program_for_the_device_calls_the_kernel(name, calls):
    states, mask_logits = inputs(128, 21, "bfloat16", size=64)
    run = tf.function(
        functools.partial(results, functools.partial(kernel_attention, name)),
        jit_compile=True,
        autograph=False,
    )
    make = run.experimental_get_compiler_ir(states, mask_logits)
    found = set(re.findall(r"custom_call @([^(]*)", str(make("stablehlo"))))
    assert found == set(calls)


def test_training_by_a_kernel_gives_the_gradients_of_training_without(
    on_a_cpu,
):
    config = override(SMALL, {"hidden_size": 16, "max_position_embeddings": 20})
    features = {
        "input_ids": np.arange(60).reshape(3, 20) % config.vocab_size,
        "input_mask": np.arange(20) < np.array([[20], [13], [1]]),
        "masked_lm_positions": np.array([[1, 2, 3]] * 3),
    }
    found = []
    for form, remat in (
        ("plain", "none"),
        ("cudnn", "none"),
        ("cudnn", "full"),
    ):
        tf.keras.utils.set_random_seed(1)
        model = AlbertForPretraining(config, attention=form, remat=remat)
        with tf.GradientTape() as tape:
            outputs = model(features, training=True)
            loss = tf.reduce_sum(outputs["masked_lm_logits"] ** 2)
        weights = model.trainable_weights
        gradients = tape.gradient(loss, [v.value for v in weights])
        found.append(
            {v.path: g for v, g in zip(weights, gradients, strict=True)}
        )
    for other in found[1:]:
        for path, gradient in found[0].items():
            if gradient is not None:
                np.testing.assert_allclose(
                    tf.convert_to_tensor(other[path]),
                    tf.convert_to_tensor(gradient),
                    rtol=1e-3,
                    atol=1e-5,
                    err_msg=path,
                )
