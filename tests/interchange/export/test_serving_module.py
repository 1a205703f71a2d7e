"""Signatures of token ids, and the default one."""

import dataclasses
import re

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
    text = serve("classification", "text", text=TEXTS[:1])
    np.testing.assert_allclose(
        got["probabilities"][0], text["probabilities"][0], **CLOSE
    )


def test_states_are_those_of_all_tokens(load, serve):
    loaded = load("pretraining")
    rows = [ids_of(loaded, text, 0)["input_ids"][0] for text in TEXTS[:3]]
    longest = max(map(len, rows))
    batch = [
        ids_of(loaded, t, longest - len(r))
        for t, r in zip(TEXTS[:3], rows, strict=True)
    ]
    features = {n: np.concatenate([b[n] for b in batch]) for n in batch[0]}
    got = serve("pretraining", "states", **features)
    want = loaded.model.encode(features)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(got[name], want[name], **CLOSE)
    vectors = serve("pretraining", "tokens", **features)
    np.testing.assert_allclose(
        got["mean_output"], vectors["mean_output"], **CLOSE
    )
    assert "sequence_output" not in vectors


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
    # The probabilities of padding are compared too.
    logits = loaded.model(features)
    want = loaded.model.heads[head].exported_outputs(logits, 1.7)
    np.testing.assert_allclose(got, want["probabilities"], **CLOSE)


def test_a_long_row_of_tokens_is_computed_alone(load, monkeypatch):
    loaded = load("classification")
    shapes = []
    encoder = type(loaded.model.encoder)
    encode = encoder.__call__

    def record(self, features, **options):
        tf.py_function(
            lambda ids: shapes.append(ids.shape.as_list()),
            [features["input_ids"]],
            [],
        )
        return encode(self, features, **options)

    monkeypatch.setattr(encoder, "__call__", record)
    monkeypatch.setattr(length_groups, "_WIDTHS", (4, 8))
    lengths = np.array([[2], [2], [20], [2], [2]])
    mask = (np.arange(20) < lengths).astype(np.int32)
    ServingModule(loaded).functions["tokens"](
        *map(tf.constant, (mask, mask, mask * 0))
    )
    assert sorted(shapes) == [[1, 20], [2, 2], [2, 2]]


@pytest.fixture(scope="module")
def refusal(serve):
    """A function that returns the error of a signature of the model."""

    def refusal(head, signature, **inputs):
        with pytest.raises(INVALID) as caught:
            serve(head, signature, **inputs)
        line = re.search("assertion failed: (.*)", str(caught.value))[1]
        return " ".join(re.findall(r"\[(.*?)\]", line))

    return refusal


def test_inputs_whose_shapes_disagree(load, refusal):
    row = ids_of(load("classification"), "bada", 0)
    row["segment_ids"] = row["segment_ids"][:, :0]
    width = row["input_ids"].size
    assert refusal("classification", "tokens", **row) == (
        f"Expected the same shape for every input; got 1 {width} in input_ids, "
        f"1 {width} in input_mask, 1 0 in segment_ids"
    )


@pytest.mark.parametrize(
    ("head", "signature", "names"),
    [
        ("classification", "text_pair", ("text", "text_pair")),
        ("multiple_choice", "choices", ("text", "choices")),
    ],
)
@pytest.mark.parametrize("rows", [(2, 1), (1, 2), (0, 1), (1, 0)])
def test_inputs_have_as_many_rows(refusal, head, signature, names, rows):
    texts = [np.full(count, "bada") for count in rows]
    if signature == "choices":
        texts[1] = np.repeat(texts[1][:, None], 2, axis=1)
    got = refusal(head, signature, **dict(zip(names, texts, strict=True)))
    assert got == (
        f"Expected as many rows in every input; got {rows[0]} in {names[0]}, "
        f"{rows[1]} in {names[1]}"
    )


@pytest.mark.parametrize(
    ("head", "signature", "name"),
    [
        ("classification", "tokens", "input_ids"),
        ("multiple_choice", "choices", "choices"),
    ],
)
def test_rows_have_columns(module, refusal, head, signature, name):
    specs = module(head).functions[signature].input_signature
    inputs = {
        spec.name: np.full(
            [2, 0][: spec.shape.rank],
            "bada" if spec.dtype == tf.string else 0,
            spec.dtype.as_numpy_dtype,
        )
        for spec in specs
    }
    expected = f"Expected at least one value in each row of {name}; got shape"
    assert refusal(head, signature, **inputs) == f"{expected} 2 0"


@pytest.mark.parametrize(
    ("head", "name", "number", "highest"),
    [
        ("classification", "input_ids", 200, 199),
        ("classification", "input_mask", 2, 1),
        ("classification", "segment_ids", 2, 1),
        pytest.param("answerable_span", "p_mask", 7, 1, marks=pytest.mark.slow),
    ],
)
def test_numbers_are_in_their_range(load, refusal, head, name, number, highest):
    row = ids_of(load("classification"), "bada", 0)
    row.setdefault("p_mask", np.zeros_like(row["input_mask"]))
    if head == "classification":
        del row["p_mask"]
    wrong = row | {name: row[name].copy()}
    wrong[name][0, -1] = number
    batch = {n: np.concatenate([row[n], wrong[n]]) for n in row}
    expected = f"Expected numbers from 0 to {highest} in {name} but row 1 has "
    assert refusal(head, "tokens", **batch) == f"{expected}{number}"
    examples = [serialized(row), serialized(wrong)]
    got = refusal(head, "examples", examples=examples)
    assert got == f"{expected}{number}"


def test_pairs_with_a_single_embedding_of_segments(load, tiny_tokenizer):
    loaded = load("classification", type_vocab_size=1)
    functions = ServingModule(loaded).functions
    row = tiny_tokenizer(["bada"], ["bada"])
    by_ids = functions["tokens"](*map(tf.constant, row.values()))
    by_text = functions["text_pair"](
        tf.constant(["bada"]), tf.constant(["bada"])
    )
    np.testing.assert_allclose(
        by_ids["probabilities"], by_text["probabilities"], rtol=1e-5
    )


NUMBERS = {
    name: [number] * 5
    for name, number in (
        ("input_ids", 7),
        ("input_mask", 1),
        ("segment_ids", 0),
    )
}


@pytest.mark.parametrize(
    ("head", "fault", "message"),
    [
        (
            "classification",
            b"",
            "Expected a serialized tf.Example with 1 to "
            "max_position_embeddings=24 input_ids but row 1 has 0",
        ),
        # Bytes that are a message of fields that tf.Example has not.
        ("classification", b"junk", "input_ids but row 1 has 0"),
        ("classification", {"input_ids": []}, "input_ids but row 1 has 0"),
        ("classification", {"input_ids": [2**32 + 7] * 5}, f"has {2**32 + 7}"),
        ("classification", {"input_mask": [2**32] * 5}, f"has {2**32}"),
        (
            "classification",
            {"input_mask": [1] * 4},
            "Expected as many input_mask as input_ids but row 1 has 4 and 5",
        ),
        ("classification", {"segment_ids": [0] * 6}, "row 1 has 6 and 5"),
        (
            "classification",
            {name: number * 5 for name, number in NUMBERS.items()},
            "input_ids but row 1 has 25",
        ),
        pytest.param(
            "answerable_span",
            {"p_mask": []},
            "Expected as many p_mask as input_ids but row 1 has 0 and 5",
            marks=pytest.mark.slow,
        ),
        (
            "multiple_choice",
            {"input_ids": [7] * 25},
            "with 24 input_ids for each choice but row 1 has 25",
        ),
        ("multiple_choice", b"", "for each choice but row 1 has 0"),
    ],
)
def test_an_example_at_fault_is_refused(refusal, head, fault, message):
    good = dict(NUMBERS)
    if head == "answerable_span":
        good["p_mask"] = [0] * 5
    if head == "multiple_choice":
        good = {"input_ids": [7] * 24}
    if isinstance(fault, dict):
        fault = example(**good | fault)
    got = refusal(head, "examples", examples=[example(**good), fault])
    assert message in got


def example(**features):
    return serialized({n: np.array([v], int) for n, v in features.items()})


def no_rows(spec, columns):
    shape = [0] + [columns] * (spec.shape.rank - 1)
    return np.zeros(shape, spec.dtype.as_numpy_dtype)


@pytest.mark.parametrize(
    "head",
    [
        "multiple_choice",
        *(
            pytest.param(head, marks=pytest.mark.slow)
            for head in (
                *("none", "pretraining", "classification", "span"),
                *("answerable_span", "token_classification"),
            )
        ),
    ],
)
def test_no_rows_are_answered_with_no_rows(module, head):
    for name, function in module(head).functions.items():
        for columns in (0, 3):
            answers = function(
                *(
                    tf.constant(no_rows(spec, columns))
                    for spec in function.input_signature
                )
            )
            outputs = function.get_concrete_function().structured_outputs
            for output, value in answers.items():
                assert value.shape[0] == 0, (name, output)
                assert outputs[output].shape.is_compatible_with(value.shape)
                assert outputs[output].dtype == value.dtype


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
