"""Directories of sentence-transformers; tests/parity has the library."""

import json
import pathlib

import numpy as np
import pytest
from tiny_models import built, edit_json, save

from albert_tf.config import UserError
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
)
from albert_tf.modeling.models import AlbertForSentenceEmbedding
from tests.numpy_albert import assert_same, values_of

LEGACY = {
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
}


def written_there(directory, pooling, *others, name="1_Pooling"):
    """Writes the files of modules: the encoder, the pooling and others."""
    kinds = ["Transformer", "Pooling", *others]
    paths = ["", name, *(f"{i + 2}_{kind}" for i, kind in enumerate(others))]
    modules = [
        {"idx": i, "path": path, "type": f"sentence_transformers.x.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    directory = pathlib.Path(directory)
    (directory / "modules.json").write_text(json.dumps(modules))
    (directory / name).mkdir(exist_ok=True)
    (directory / name / "config.json").write_text(json.dumps(pooling))


@pytest.fixture
def encoder(tmp_path, tiny_tokenizer):
    return save(tmp_path / "encoder", built("none"), tiny_tokenizer)


@pytest.mark.parametrize(
    ("pooling", "others", "expected"),
    [
        (LEGACY, (), "mean"),
        (LEGACY | {"pooling_mode_cls_token": True}, (), None),
        ({"pooling_mode": "cls"}, ("Normalize",), "first"),
        ({"pooling_mode": ["mean", "max"]}, (), "mean_max"),
        # The halves of a vector are the other way round in this order.
        (LEGACY | {"pooling_mode_max_tokens": True}, (), None),
        ({"pooling_mode": "lasttoken"}, (), None),
        ({"pooling_mode": "mean"}, ("Dense",), None),
    ],
)
def test_modules_decide_on_the_vector(encoder, pooling, others, expected):
    written_there(encoder, pooling, *others)
    if not expected:
        with pytest.raises(UserError, match=r"modules\.json its encoder is re"):
            load_model_directory(encoder)
        return
    model = load_model_directory(encoder).model
    assert type(model) is AlbertForSentenceEmbedding
    length = {"length": "unit"} if others else {}
    assert model.head_options == {"pooling": expected, **length}
    assert_same(values_of(model), values_of(built("none")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"default_prompt_name": None, "truncate_dim": None}, None),
        ({"default_prompt_name": "document"}, None),
        ({"default_prompt_name": ["query"]}, None),
        (
            {"default_prompt_name": "query"},
            "the prompt 'query: ' is put before every text there; put it befo",
        ),
        ({"truncate_dim": 8}, "truncate_dim=8 cuts vectors there; let it be"),
    ],
)
def test_settings_that_change_vectors(encoder, settings, message):
    written_there(encoder, {"pooling_mode": "mean"})
    prompts = {"query": "query: ", "document": ""}
    pathlib.Path(encoder, "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": prompts, **settings})
    )
    if message:
        with pytest.raises(UserError, match=message):
            load_model_directory(encoder)
        return
    load_model_directory(encoder)


@pytest.mark.parametrize("length", ["any", "unit"])
@pytest.mark.parametrize("pooling", ["first", "mean", "mean_max"])
def test_they_are_written_with_embeddings(
    tmp_path, tiny_tokenizer, pooling, length
):
    options = {"pooling": pooling, "length": length}
    model = AlbertForSentenceEmbedding(
        built("none").config, head_options=options
    )
    directory = pathlib.Path(save(tmp_path / "new", model, tiny_tokenizer, 12))
    # What transformers copied of another model does not matter.
    edit_json(directory, "config.json", albert_tf={"model": "AlbertModel"})
    loaded = load_model_directory(str(directory))
    found = loaded.model.head_options
    assert {"length": "any", **found} == options
    assert loaded.max_seq_length == 12
    ids = np.array([[2, 7, 8, 3], [2, 9, 3, 0]])
    features = {"input_ids": ids, "input_mask": ids > 0}
    expected = np.array(model(features)["embedding"])
    np.testing.assert_array_equal(loaded.model(features)["embedding"], expected)
    norms = np.linalg.norm(expected, axis=-1)
    assert np.allclose(norms, 1, atol=1e-5) == (length == "unit")
    # A model without a vector of its own has no such files.
    save(directory, built("classification"), tiny_tokenizer)
    assert not {"modules.json", "1_Pooling", "sentence_bert_config.json"} & {
        path.name for path in directory.iterdir()
    }


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("tokenizer_config.json", "model_max_length"),
        ("sentence_bert_config.json", "max_seq_length"),
    ],
)
def test_texts_are_cut_where_they_are_there(encoder, name, key):
    pathlib.Path(encoder, name).write_text("{}")
    section = {"model": "AlbertModel", "max_seq_length": 14}
    edit_json(encoder, name, **{key: 9})
    edit_json(encoder, "config.json", albert_tf=section)
    own = find_initial_weights(encoder).description.max_seq_length
    assert own == (9 if key == "max_seq_length" else 14)
    # The section of the model that it was made of: it had another head.
    section = {"model": "AlbertForPretraining", "max_seq_length": 6}
    edit_json(encoder, "config.json", albert_tf=section)
    assert find_initial_weights(encoder).description.max_seq_length == 9
    path = pathlib.Path(encoder, "config.json")
    values = json.loads(path.read_text())
    del values["albert_tf"]
    path.write_text(json.dumps(values))
    for length, expected in ((9, 9), (10**30, 16), (None, 16)):
        edit_json(encoder, name, **{key: length})
        found = find_initial_weights(encoder).description.max_seq_length
        assert found == expected


def test_modules_beside_a_section_of_ours_have_a_length_of_their_own(encoder):
    section = {"model": "AlbertModel", "max_seq_length": 14}
    edit_json(encoder, "config.json", albert_tf=section)
    edit_json(encoder, "tokenizer_config.json", model_max_length=9)
    written_there(encoder, {"pooling_mode": "mean"})
    assert load_model_directory(encoder).max_seq_length == 9


def test_the_length_of_sentence_transformers_comes_before_the_tokenizers(
    encoder,
):
    written_there(encoder, {"pooling_mode": "mean"})
    pathlib.Path(encoder, "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 12})
    )
    edit_json(encoder, "tokenizer_config.json", model_max_length=9)
    assert load_model_directory(encoder).max_seq_length == 12


@pytest.mark.parametrize("is_lower", [True, False])
def test_lower_case_before_a_cased_tokenizer(encoder, is_lower):
    written_there(encoder, {"pooling_mode": "mean"})
    pathlib.Path(encoder, "sentence_bert_config.json").write_text(
        json.dumps({"do_lower_case": True})
    )
    edit_json(encoder, "tokenizer_config.json", do_lower_case=is_lower)
    if is_lower:
        load_model_directory(encoder)
        return
    with pytest.raises(UserError, match="do_lower_case=True lowers texts th"):
        load_model_directory(encoder)


def test_other_contents_of_the_list(encoder):
    path = pathlib.Path(encoder, "modules.json")
    for content, message in (
        ('[{"idx": 0}]', "expected a list of modules, each with a type and a"),
        ("3", "is not a JSON list"),
        ("[", "is not valid JSON"),
    ):
        path.write_text(content)
        with pytest.raises(UserError, match=message):
            load_model_directory(encoder)


def test_an_encoder_in_a_directory_of_its_own(encoder):
    """By itself it would have the pooling mean."""
    outer = pathlib.Path(encoder).parent
    written_there(outer, LEGACY | {"pooling_mode_cls_token": True})
    modules = json.loads((outer / "modules.json").read_text())
    modules[0]["path"] = "encoder"
    (outer / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(
        UserError, match=r"modules\.json: the encoder is in .*'encoder'; move"
    ):
        load_model_directory(str(outer))
