"""Functional models of any length, and exports, on JAX and torch.

There Keras infers shapes by tracing, with sizes that stand for the unknown
ones. A backend is chosen once per process, so this file is also the program:
python parity_backends.py, with KERAS_BACKEND.
"""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from albert_tf.config import ModelConfig, UserError, override
from albert_tf.modeling.inputs import ENCODER_INPUTS
from albert_tf.modeling.models import AlbertForClassification, models

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOUND = 1e-6
SIZES = {
    "vocab_size": 31,
    "embedding_size": 6,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
}


# Models whose head reads the vector of a text, and the widest one.
POOLED = ("AlbertForClassification", "AlbertForMultipleChoice")
POOLING = {"pooling": "mean_max"}


def new_model(kind, positions, **changes):
    sizes = SIZES | {"max_position_embeddings": positions} | changes
    labels = 3 if models()[kind].takes_labels() else None
    return models()[kind](override(ModelConfig(), sizes), labels)


def functional(model, kind, names, length):
    """A functional model around it, its inputs' shapes and its outputs'."""
    shape = (2, length) if kind == "AlbertForMultipleChoice" else (length,)
    shapes = dict.fromkeys(names, shape)
    for name in model.features_of_heads():
        shapes[name] = (length if name == "p_mask" else 2,)
    inputs = {
        name: keras.Input(shape, dtype="int32", name=name)
        for name, shape in shapes.items()
    }
    outputs = model(inputs)
    inferred = {name: value.shape for name, value in outputs.items()}
    shapes = {name: value.shape for name, value in inputs.items()}
    return keras.Model(inputs, outputs), shapes, inferred


def largest_difference(kind, positions, **changes):
    model, largest = new_model(kind, positions, **changes), 0.0
    for names in (ENCODER_INPUTS, ENCODER_INPUTS[:1]):
        for length in (None, 6):
            whole, shapes, inferred = functional(model, kind, names, length)
            features = {
                name: np.ones(
                    [size or (3, 6)[axis > 0] for axis, size in enumerate(x)],
                    "int32",
                )
                for name, x in shapes.items()
            }
            expected, found = model(features), whole(features)
            for name, value in expected.items():
                for known, size in zip(
                    inferred[name], value.shape, strict=True
                ):
                    assert known in (None, size), (kind, positions, name)
                one, two = map(keras.ops.convert_to_numpy, (value, found[name]))
                largest = max(largest, float(np.abs(one - two).max()))
    return largest


def check_exports(directory):
    model = new_model("AlbertForClassification", 8)
    fixed = [
        {n: keras.InputSpec("int32", (2, 7), name=n) for n in ENCODER_INPUTS}
    ]
    backend = keras.backend.backend()
    formats = {"jax": "tf_saved_model", "torch": "torch"}
    refused = {"format": formats[backend]}, {"input_signature": fixed}
    for arguments in refused[: 1 + (backend == "torch")]:
        with pytest.raises(UserError, match=f"On {backend} Keras exports"):
            model.export(os.path.join(directory, "no"), **arguments)
    suffix = {"jax": "", "torch": ".pt2"}[backend]
    path = os.path.join(directory, f"model{suffix}")
    model.export(path, formats[backend], verbose=False, input_signature=fixed)
    assert os.path.exists(path)


def loaded_again(path):
    """The difference of a functional model and itself from a file."""
    kind = "AlbertForClassification"
    whole, *_ = functional(new_model(kind, 8), kind, ENCODER_INPUTS[:1], None)
    assert isinstance(whole.layers[-1], AlbertForClassification)
    whole.save(path)
    features = {"input_ids": np.ones((2, 5), "int32")}
    one, two = (
        keras.ops.convert_to_numpy(each(features)["logits"])
        for each in (whole, keras.saving.load_model(path))
    )
    return float(np.abs(one - two).max())


def main(directory):
    for positions in (8, 64, 512):
        for kind in models():
            print(kind, largest_difference(kind, positions))
        for kind in POOLED:
            print(kind, largest_difference(kind, positions, **POOLING))
    print("saved", loaded_again(os.path.join(directory, "model.keras")))
    check_exports(directory)
    print(keras.backend.backend())


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_functional_models_of_any_length(tmp_path, record_difference, backend):
    finished = subprocess.run(
        [sys.executable, __file__, str(tmp_path)],
        env=os.environ
        | {
            "KERAS_BACKEND": backend,
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    lines = [
        line.split()
        for line in finished.stdout.splitlines()
        if line.startswith(("Albert", "saved", backend))
    ]
    assert lines.pop() == [backend]
    assert len(lines) == 3 * (len(models()) + len(POOLED)) + 1
    for kind, difference in lines:
        subject = f"{backend} backend, functional {kind}"
        record_difference(subject, "outputs", float(difference), BOUND)


if __name__ == "__main__":
    main(sys.argv[1])
