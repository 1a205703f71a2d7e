"""Files for LiteRT, ONNX and Keras: there they give the same outputs."""

import json
import os

import keras
import numpy as np
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter
from tiny_models import built, save

from albert_tf.interchange.convert import convert
from albert_tf.interchange.export.serving_module import ServingModule
from albert_tf.interchange.model_directory import load_model_directory

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture
def converted(tmp_path, tiny_tokenizer):
    """Gives a function that returns a model's functions, ours and theirs."""

    def converted(head, to_format, *, bias=True, **sizes):
        sizes |= {"max_position_embeddings": 160, "num_hidden_layers": 2}
        model = built(head, **sizes)
        if not bias:
            model = keras.models.clone_model(model)
            for weight in model.heads[head].weights:
                if weight.path.endswith("/bias"):
                    weight.assign(keras.ops.zeros_like(weight))
        source = save(tmp_path / "source", model, tiny_tokenizer, 160)
        target = str(tmp_path / "target")
        convert(source, target, to_format, log=len)
        module = ServingModule(
            load_model_directory(source), micro_batch_tokens=None
        )
        found = module.functions
        return found.get("states", found["tokens"]), target

    return converted


def inputs_of(function, batch, length):
    """Returns random inputs of a function, the last three padding."""
    rng = np.random.default_rng(length)
    found = {}
    for spec in function.input_signature:
        shape = (batch, *(2,) * (spec.shape.rank - 2), length)
        found[spec.name] = rng.integers(0, 2, shape).astype(np.int32)
    found["input_ids"] = rng.integers(5, 50, shape).astype(np.int32)
    found["input_mask"] = np.ones_like(found["input_ids"])
    found["input_mask"][..., length - 3 :] = 0
    return found


def assert_same_outputs(run, function):
    """Compares outputs other than strings, at two batch sizes and lengths."""
    for batch, length in ((3, 12), (1, 30)):
        inputs = inputs_of(function, batch, length)
        outputs = function(*inputs.values())
        want = {n: v for n, v in outputs.items() if v.dtype != "string"}
        got = run(inputs)
        assert sorted(got) == sorted(want)
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "pooling"),
    [
        ("pretraining", "first"),
        ("multiple_choice", "pair_mean_ngrams"),
        ("span", "first"),
    ],
)
def test_litert_gives_the_same_outputs(converted, head, pooling):
    function, target = converted(head, "litert", pooling=pooling)
    runner = Interpreter(os.path.join(target, "model.tflite"))
    runner = runner.get_signature_runner()
    assert_same_outputs(lambda inputs: runner(**inputs), function)


@pytest.mark.slow
def test_litert_with_int8_is_near_and_smaller(converted):
    # Smaller matrices stay as they are.
    sizes = {"embedding_size": 64, "hidden_size": 64}
    function, target = converted("classification", "litert_int8", **sizes)
    path = os.path.join(target, "model_int8.tflite")
    inputs = inputs_of(function, 1, 12)
    got = Interpreter(path).get_signature_runner()(**inputs)["probabilities"]
    want = function(*inputs.values())["probabilities"].numpy()
    np.testing.assert_allclose(got, want, atol=0.02)
    assert np.abs(got - want).max() > 1e-6
    with open(os.path.join(target, "labels.json"), encoding="utf-8") as file:
        assert json.load(file) == ["LABEL_0", "LABEL_1", "LABEL_2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "options"),
    [
        ("classification", {"pooling": "mean_ngrams"}),
        ("classification", {"hidden_act": "gelu_exact"}),
        ("span", {}),
        ("answerable_span", {}),
        # TensorFlow leaves additions of 0 out, and another graph is converted.
        ("answerable_span", {"bias": False}),
    ],
)
def test_onnx_gives_the_same_outputs(converted, head, options):
    function, target = converted(head, "onnx", **options)
    session = onnxruntime.InferenceSession(os.path.join(target, "model.onnx"))
    names = [output.name for output in session.get_outputs()]
    assert_same_outputs(
        lambda inputs: dict(zip(names, session.run(None, inputs), strict=True)),
        function,
    )


@pytest.mark.slow
def test_keras_loads_the_model(converted, tmp_path):
    _, target = converted("classification", "keras", pooling="mean")
    names = ("input_ids", "input_mask", "segment_ids")
    values = [[[2, 11, 12, 3]], [[1, 1, 1, 1]], [[0, 0, 1, 1]]]
    inputs = dict(zip(names, map(np.array, values), strict=True))
    loaded = keras.saving.load_model(os.path.join(target, "model.keras"))
    ours = load_model_directory(str(tmp_path / "source")).model
    np.testing.assert_allclose(
        loaded(inputs)["logits"], ours(inputs)["logits"], **CLOSE
    )
