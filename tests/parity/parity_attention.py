"""Attention in chunks of queries on JAX and torch: that of the whole.

A backend is chosen once per process, so this file is also the program that
computes on one: python parity_attention.py, with KERAS_BACKEND.
"""

import functools
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from numpy_albert import softmax

from albert_tf.modeling import attention

TESTS = pathlib.Path(__file__).resolve().parents[1]
# Relative to the largest entry of each row, by type.
BOUNDS = {"float32": 1e-6, "bfloat16": 0.05, "float16": 0.01}
# Three chunks, of which the last is padded.
LENGTH, CHUNK = 10, 4
HEADS, SIZE = 3, 4
# A row each, 1 for tokens: all, some, padding in front and within, none.
MASK = np.array(
    [
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 1, 1, 1, 1],
        [1, 1, 0, 0, 0, 1, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
)


def dropout(weights, positions, fifths):
    """Drops a number of fifths, by the positions of query and key."""
    keys = keras.ops.arange(weights.shape[-1])
    numbers = (3 * positions[:, None, :, None] + keys) % 5
    kept = keras.ops.cast(numbers >= fifths, weights.dtype)
    return weights * kept / (1 - fifths / 5)


def with_gradients(function):
    """Returns that of (gradients by queries, keys and values; context).

    Its arguments: a list of the three, the logits of the mask and the fifths of
    the weights that are dropped.
    """

    def loss(states, mask_logits, fifths):
        positions = keras.ops.arange(LENGTH)[None]
        drop = functools.partial(dropout, fifths=fifths)
        context, _ = function(*states, mask_logits, positions, drop)
        # So that every element has another gradient.
        return keras.ops.sum(keras.ops.cast(context, "float32") ** 3), context

    if keras.backend.backend() == "jax":
        import jax

        # Operation by operation JAX would compile each of them.
        return jax.jit(jax.grad(loss, has_aux=True))

    def differentiated(states, *others):
        states = [x.clone().requires_grad_() for x in states]
        value, context = loss(states, *others)
        value.backward()
        return [x.grad for x in states], context

    return differentiated


def as_float64(x):
    wide = keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))
    return wide.astype("float64")


def numpy_context(states):
    """The context without dropout, right for rows with tokens."""
    query, key, value = map(as_float64, states)
    logits = np.einsum("bqhs,bkhs->bhqk", query, key) / SIZE**0.5
    logits = np.where(MASK[:, None, None], logits, -1e9)
    return np.einsum("bhqk,bkhs->bqhs", softmax(logits), value)


def largest_difference(found, expected):
    """That of any row, relative to the row's largest entry."""
    axes = tuple(range(1, expected.ndim))
    difference = np.abs(found - expected).max(axes)
    return (difference / np.abs(expected).max(axes)).max()


def main():
    """Prints what chunks differ by: (type, what, from what, difference)."""
    attention.LONGEST_CHUNK = CHUNK
    whole = with_gradients(attention.attend)
    in_chunks = with_gradients(attention.attend_in_chunks)
    rng = np.random.default_rng(1)
    arrays = rng.normal(size=(3, len(MASK), LENGTH, HEADS, SIZE))
    for dtype in BOUNDS:
        states = [keras.ops.convert_to_tensor(x, dtype) for x in arrays]
        mask_logits = attention.mask_to_logits(MASK, dtype)
        for fifths in (0, 2):
            gradients, context = in_chunks(states, mask_logits, fifths)
            expected, of_whole = whole(states, mask_logits, fifths)
            found = [context, *gradients]
            for name, one, other in zip(
                ("context", "dquery", "dkey", "dvalue"),
                found,
                [of_whole, *expected],
                strict=True,
            ):
                assert one.dtype == other.dtype == states[0].dtype
                pair = map(as_float64, (one, other))
                print(dtype, name, "whole", largest_difference(*pair))
            if not fifths:
                some = MASK.any(axis=1)
                pair = as_float64(context)[some], numpy_context(states)[some]
                print(dtype, "context", "NumPy", largest_difference(*pair))
    print(keras.backend.backend())


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_chunks_give_the_context_and_gradients_of_the_whole(
    record_difference, backend
):
    finished = subprocess.run(
        [sys.executable, __file__],
        env=os.environ
        | {
            "KERAS_BACKEND": backend,
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(map(str, (TESTS.parent, TESTS))),
        },
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    lines = [line.split() for line in finished.stdout.splitlines()]
    assert lines.pop() == [backend]
    # With dropout and without; NumPy has no gradients and no dropout.
    assert len(lines) == len(BOUNDS) * (2 * 4 + 1)
    for dtype, name, other, difference in lines:
        record_difference(
            f"{backend} backend, attention in chunks, {dtype}",
            f"{name}, from {other}",
            float(difference),
            BOUNDS[dtype],
        )


if __name__ == "__main__":
    main()
