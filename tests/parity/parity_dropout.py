"""Dropout on every backend: the elements that NumPy's uint32 says.

A backend is chosen once per process, so this file is also the program that
computes on one: python parity_dropout.py, with KERAS_BACKEND.
"""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from numpy_albert import hashed

from albert_tf.modeling.dropout import (
    apply_dropout,
    example_keys,
    stream_keys,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED, STEP, STREAM, RATE = 7, 3, 5, 0.3
SHAPE = (4, 6, 10)
# Between the numbers of rows: some have more than 16 bits.
ROW_STEP = 30_000


def main():
    """Prints the backend, the keys and what is dropped."""
    numbers = keras.ops.arange(SHAPE[0], dtype="int32")
    step = keras.ops.convert_to_tensor(STEP, "int32")
    keys = stream_keys(example_keys(SEED, step, numbers), STREAM)
    rows = keras.ops.arange(SHAPE[1], dtype="int32")[None] * ROW_STEP
    dropped = apply_dropout(RATE, keras.ops.ones(SHAPE), keys, rows)
    arrays = map(keras.ops.convert_to_numpy, (keys, dropped == 0))
    print(json.dumps([keras.backend.backend(), *(a.tolist() for a in arrays)]))


def expected():
    """The keys and what is dropped, in NumPy's uint32, which wraps around."""

    def uint32(value):
        return np.array([value % 2**32], np.uint32)

    golden = uint32(0x9E3779B9)
    step_key = hashed(hashed(uint32(SEED)) + uint32(STEP))
    numbers = np.arange(SHAPE[0], dtype=np.uint32)
    keys = hashed(step_key ^ hashed(numbers * golden))
    keys = hashed(keys + uint32((STREAM + 1) * 0x9E3779B9))
    rows = np.arange(SHAPE[1], dtype=np.uint32)[:, None] * np.uint32(ROW_STEP)
    columns = np.arange(SHAPE[2], dtype=np.uint32)
    of_rows = golden << np.uint32(16)
    counter = rows * of_rows + columns * golden
    counter += hashed((rows >> np.uint32(16)) * of_rows)
    bits = hashed(keys[:, None, None] ^ counter)
    return keys.tolist(), (bits < uint32(int(RATE * 2**32))).tolist()


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_the_same_elements_are_dropped_on_every_backend(backend):
    finished = subprocess.run(
        [sys.executable, __file__],
        env=os.environ
        | {
            "KERAS_BACKEND": backend,
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        },
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    keys, dropped = expected()
    assert json.loads(finished.stdout) == [backend, keys, dropped]


if __name__ == "__main__":
    main()
