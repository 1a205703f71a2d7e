"""Signatures of token ids, and the default one."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from export_samples import CLOSE, FEATURES, TEXTS

from albert_tf.interchange.export import length_groups
from albert_tf.interchange.export.serving_module import ServingModule
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.records.example_wire import encode_examples

INVALID = tf.errors.InvalidArgumentError


def ids_of(loaded, text, padding):
    """Returns a row of a batch by name, with padding."""
    tokenizer = loaded.tokenizer
    ids = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
    return {
        "input_ids": np.array([ids + [tokenizer.pad_id] * padding], np.int32),
        "input_mask": np.array([[1] * len(ids) + [0] * padding], np.int32),
        "segment_ids": np.zeros((1, len(ids) + padding), np.int32),
    }


def serialized(features):
    columns = {
        name: (values[0], np.array([len(values[0])]))
        for name, values in features.items()
    }
    return encode_examples(columns)[0]


def test_tokens_and_examples_are_answered_alike(load, serve):
    loaded = load("classification")
    batch = [ids_of(loaded, text, n) for n, text in enumerate(TEXTS[:3])]
    examples = [serialized(row) for row in batch]
    # Without a mask and segments; no padding then.
    examples.append(serialized({"input_ids": batch[0]["input_ids"]}))
    got = serve("classification", "examples", examples=examples)
    for number, row in enumerate([*batch, batch[0]]):
        want = serve("classification", "tokens", **row)
        for name in ("probabilities", "label"):
            assert want[name].shape[0] == 1
        np.testing.assert_allclose(
            got["probabilities"][number], want["probabilities"][0], **CLOSE
        )
        old = serve("classification", "ids", **row)
        np.testing.assert_array_equal(
            old["probabilities"], want["probabilities"]
        )
    text = serve("classification", "text", text=TEXTS[:1])
    np.testing.assert_allclose(
        got["probabilities"][0], text["probabilities"][0], **CLOSE
    )


@pytest.mark.parametrize("head", ["classification", "token_classification"])
def test_tokens_of_a_batch_are_answered_as_the_model_answers(load, serve, head):
    loaded = load(head)
    lengths = np.array([[20], [2], [9], [1], [12]])
    columns = np.arange(20)
    features = {
        "input_ids": 5 + (columns * lengths) % 7,
        "input_mask": columns < lengths,
        "segment_ids": np.zeros_like(columns + lengths),
    }
    features = {n: v.astype(np.int32) for n, v in features.items()}
    got = serve(head, "tokens", **features)["probabilities"]
    # Those of padding too.
    want = loaded.model.heads[head].answers(loaded.model(features))
    np.testing.assert_allclose(got, want["probabilities"], **CLOSE)


def test_a_long_row_of_tokens_is_computed_alone(load, monkeypatch):
    loaded = load("classification")
    shapes = []
    encoder = type(loaded.model.encoder)
    encode = encoder.__call__

    def record(self, input_ids, *args, **options):
        tf.py_function(
            lambda ids: shapes.append(ids.shape.as_list()), [input_ids], []
        )
        return encode(self, input_ids, *args, **options)

    monkeypatch.setattr(encoder, "__call__", record)
    monkeypatch.setattr(length_groups, "_WIDTHS", (4, 8))
    lengths = np.array([[2], [2], [20], [2], [2]])
    mask = (np.arange(20) < lengths).astype(np.int32)
    ServingModule(loaded).functions["tokens"](
        *map(tf.constant, (mask, mask, mask * 0))
    )
    assert sorted(shapes) == [[1, 20], [2, 2], [2, 2]]


def test_inputs_whose_shapes_disagree(load, serve):
    row = ids_of(load("classification"), "bada", 0)
    row["segment_ids"] = row["segment_ids"][:, :0]
    with pytest.raises(INVALID, match="segment_ids must have the shape of"):
        serve("classification", "tokens", **row)


@pytest.mark.parametrize(
    ("head", "name", "number"),
    [("classification", "input_mask", 2), ("answerable_span", "p_mask", -1)],
)
def test_masks_are_0_and_1(load, serve, head, name, number):
    row = ids_of(load("classification"), "bada", 0)
    row.setdefault(name, np.zeros_like(row["input_mask"]))[0, -1] = number
    with pytest.raises(INVALID, match=f"{name} must be from 0"):
        serve(head, "tokens", **row)


def test_examples_of_choices(load, serve):
    row = ids_of(load("multiple_choice"), "bada", 0)
    row = {n: np.pad(v, ((0, 0), (0, 24 - v.shape[1]))) for n, v in row.items()}
    examples = [serialized({n: np.tile(v, 3) for n, v in row.items()})]
    got = serve("multiple_choice", "examples", examples=examples)
    want = serve(
        "multiple_choice", "tokens", **{n: v[None] for n, v in row.items()}
    )
    assert want["probabilities"].shape == (1, 1)
    np.testing.assert_allclose(got["probabilities"], [[1 / 3] * 3], **CLOSE)
    # Beside an example of more choices it has the same answer.
    examples.append(serialized({n: np.tile(v, 4) for n, v in row.items()}))
    got = serve("multiple_choice", "examples", examples=examples)
    np.testing.assert_allclose(
        got["probabilities"], [[1 / 3] * 3 + [0.0], [1 / 4] * 4], **CLOSE
    )


def test_the_default_of_a_task_of_pairs_takes_pairs(classifier, module):
    record = TaskRecord("mood", FEATURES, pairs=True)
    paired = ServingModule(dataclasses.replace(classifier, task=record))
    single = module("classification")
    for served, name in ((paired, "text_pair"), (single, "text")):
        assert served.functions["serving_default"] is served.functions[name]
