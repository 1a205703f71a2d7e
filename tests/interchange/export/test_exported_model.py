"""Exports, loaded and called by the names of their signatures."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import UserError
from albert_tf.interchange.export.exported_model import ExportedModel
from albert_tf.records.example_wire import encode_examples

pytestmark = pytest.mark.usefixtures("optimized_graphs")


@pytest.fixture(scope="module")
def model(export_dir):
    return ExportedModel(export_dir)


def test_an_export_has_its_name_version_signatures_and_labels(model, exported):
    assert (model.name, model.version) == ("mood", 1)
    assert model.path == exported
    assert model.labels == ["sea", "land", "air"]
    assert next(iter(model.signatures)) == "serving_default"
    pair = model.signatures["text_pair"]
    assert pair.inputs == {
        name: tf.TensorSpec([None], tf.string, name)
        for name in ("text", "text_pair")
    }
    assert pair.outputs["probabilities"].shape.as_list() == [None, 3]


@pytest.mark.parametrize(
    # One short text is computed in the caller's thread.
    "texts",
    [["The bada of gule.", "ÉLÈVE"], ["ÉLÈVE"], ["bada " * 300]],
    ids=["two", "short", "long"],
)
def test_a_call_answers_as_the_loaded_function(model, loaded_signatures, texts):
    got = model.call("text", {"text": texts})
    want = loaded_signatures["text"](text=tf.constant(texts))
    assert got.keys() == want.keys()
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value.numpy())
    assert set(got["label"]) <= set(map(str.encode, model.labels))


def test_a_version_and_the_highest_version_are_found(exported, tmp_path):
    for version in ("2", "10", "export.tmp"):
        shutil.copytree(exported, tmp_path / "mood" / version)
    assert ExportedModel(str(tmp_path / "mood")).version == 10
    assert ExportedModel(str(tmp_path / "mood/2/")).version == 2


def test_a_directory_without_an_export_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match=r"is no export: .*bin\.export"):
            ExportedModel(str(path))


@pytest.mark.parametrize(
    "damaged", ["saved_model.pb", "variables/variables.index"]
)
def test_a_damaged_export_is_refused(exported, tmp_path, damaged):
    shutil.copytree(exported, tmp_path / "1")
    (tmp_path / "1" / damaged).write_bytes(b"damaged")
    with pytest.raises(UserError, match="cannot be loaded: .+; export") as got:
        ExportedModel(str(tmp_path))
    assert "\n" not in str(got.value)


@pytest.mark.parametrize("content", ['{"sea": 0}', '["sea", NaN, "air"]'])
def test_damaged_labels_are_refused(exported, tmp_path, content):
    shutil.copytree(exported, tmp_path / "1")
    labels = tmp_path / "1" / "assets" / "labels.json"
    labels.write_text(content)
    with pytest.raises(
        UserError, match=f"^{labels} is no.*Export the model ag"
    ):
        ExportedModel(str(tmp_path))


def test_a_signature_of_another_program_is_refused(tmp_path):
    module = tf.Module()
    module.f = tf.function(
        lambda x: {"y": x}, [tf.TensorSpec([], tf.int32, "x")]
    )
    tf.saved_model.save(module, str(tmp_path / "1"), {"f": module.f})
    with pytest.raises(UserError, match="was not written by bin.export"):
        ExportedModel(str(tmp_path))


IDS = {
    "input_ids": [[2, 9, 3]],
    "input_mask": [[1, 1, 1]],
    "segment_ids": [[0, 0, 0]],
}


# The list of this example has the field number of one of integers, once.
(EXAMPLE,) = encode_examples({"input_ids": (np.array([2, 3]), np.array([2]))})


@pytest.mark.parametrize(
    ("signature", "inputs", "message"),
    [
        ("txt", {}, "signature='txt' is not one of .*; did you mean text?"),
        ("text", {"txet": ["a"]}, "takes the inputs text; got 'txet'"),
        (
            "text",
            {"text": "a"},
            r"text: expected string \[any\], got 'a' without a list",
        ),
        ("text", {"text": [["a"]]}, r"\[any\], got an array \[1, 1\]"),
        ("text", {"text": [["a"], ["b", "c"]]}, "rows of different lengths"),
        ("text", {"text": ["a", 1]}, r"expected string \[any\], got 1\."),
        ("text", {"text": ["\ud800"]}, "not valid Unicode"),
        ("text_pair", {"text": ["a"], "text_pair": ["b"] * 2}, "1 in text, 2"),
        ("tokens", IDS | {"input_ids": [[2.5, 9, 3]]}, r"int32 .* got \[\[2.5"),
        ("tokens", IDS | {"input_ids": [[True, True, True]]}, r"got \[\[True"),
        ("tokens", IDS | {"input_ids": [[1], [2, 3]]}, "different lengths"),
        ("tokens", IDS | {"input_ids": [[2**40, 9, 3]]}, "numbers from 3 to"),
        ("tokens", IDS | {"input_ids": [[10**30, 9, 3]]}, r"got \[\[1000"),
        ("tokens", IDS | {"input_ids": [2, 9, 3]}, r"got an array \[3\]"),
        ("tokens", IDS | {"input_ids": [[]]}, "The model refuses its input: "),
        (
            "tokens",
            IDS | {"input_ids": [[2, 999, 3]]},
            "to 199 in input_ids but row 0 has 999",
        ),
        (
            "tokens",
            IDS | {n: [[1] * 200] for n in IDS},
            "s=24 tokens in each row; got 200",
        ),
        ("examples", {"examples": [b"junk"]}, "The model refuses its input: "),
        (
            "examples",
            {"examples": [b"", b"\xd8"]},
            "Examples but row 1 is none",
        ),
        ("examples", {"examples": [b"", b"\0\0\0"]}, "but row 1 is none"),
        (
            "examples",
            {"examples": [EXAMPLE, EXAMPLE.replace(b"\x1a", b"\x12")]},
            "Expected input_ids of type int64 but row 1 has float",
        ),
        ("examples", {"examples": [b"ab\ncd"]}, "Examples but row 0 is none"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(
    model, signature, inputs, message
):
    with pytest.raises(UserError, match=message) as caught:
        model.call(signature, inputs)
    assert "\n" not in str(caught.value)


def test_names_of_parts_of_the_graph_are_left_out(model, monkeypatch):
    def run(*_):
        message = (
            "{{function_node a}} {{function_node b}} no such row\n\t [[c]]"
        )
        raise tf.errors.InvalidArgumentError(None, None, message)

    monkeypatch.setattr(model, "_callable", lambda *_: run)
    with pytest.raises(UserError, match="its input: no such row.$"):
        model.call("text", {"text": ["a"]})
