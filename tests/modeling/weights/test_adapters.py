"""Low-rank adapters saved without their model, as PEFT does."""

import json

import numpy as np
import pytest
import safetensors.numpy

from albert_tf import (
    AlbertForClassification,
    AlbertForSentenceEmbedding,
    AlbertModel,
    ModelConfig,
)
from albert_tf.config import UserError, override
from albert_tf.modeling.weights.adapters import add_adapters

CONFIG = ModelConfig(
    vocab_size=20,
    embedding_size=4,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=8,
)
IDS = {"input_ids": np.array([[2, 5, 6, 3], [2, 7, 3, 0]], np.int32)}
QUERY = "encoder.albert_layer_groups.0.albert_layers.0.attention.query"


def adapted(model, rank=2):
    """Returns the model with an adapter that changes its outputs."""
    for variable in model.encoder.weights:
        variable.trainable = False
    rng = np.random.default_rng(0)
    for block in model.encoder.blocks:
        query = block.attention.query
        query.enable_lora(rank, lora_alpha=6)
        for factor in (query.lora_kernel_a, query.lora_kernel_b):
            factor.assign(rng.normal(size=factor.shape))
    return model


@pytest.mark.parametrize("sharing", ["all", "ffn"])
def test_adapters_come_back_on_their_model(tmp_path, sharing):
    config = override(CONFIG, {"sharing": sharing})
    model = AlbertForClassification(config, 3)
    again = AlbertForClassification(config, 3)
    again.set_weights(model.get_weights())
    adapted(model)
    model.classification.classifier.bias.assign([1.0, 2.0, 3.0])
    model.save_pretrained(str(tmp_path), adapters=True)
    assert not (tmp_path / "model.safetensors").exists()
    again.load_adapters(str(tmp_path))
    np.testing.assert_allclose(again(IDS)["logits"], model(IDS)["logits"])
    # Once more, over those that are there.
    again.load_adapters(str(tmp_path))
    np.testing.assert_allclose(again(IDS)["logits"], model(IDS)["logits"])


@pytest.mark.parametrize("change", ["differ", "are of one layer alone"])
def test_copies_of_a_shared_weight_have_one_adapter(tmp_path, change):
    config = override(CONFIG, {"sharing": "attention"})
    model = AlbertModel(config)
    add_adapters(model, 2, 0.0, trains_pooler=False)
    model.save_pretrained(str(tmp_path), adapters=True)
    path = tmp_path / "adapter_model.safetensors"
    arrays = safetensors.numpy.load_file(path)
    for name in [n for n in arrays if ".albert_layer_groups.1." in n]:
        if change == "differ":
            arrays[name] = arrays[name] + 1
        else:
            del arrays[name]
    safetensors.numpy.save_file(arrays, path)
    model = AlbertModel(config)
    with pytest.raises(
        UserError, match=r"they share a weight.*e_and_unload\(\)"
    ):
        model.load_adapters(str(tmp_path))
    assert not model.encoder.blocks[0].attention.query.lora_enabled


def test_adapters_of_other_weights_are_reported(tmp_path, capsys):
    model, other = (AlbertForClassification(CONFIG, 3) for _ in range(2))
    same = AlbertForClassification(CONFIG, 3)
    same.set_weights(model.get_weights())
    kernel = other.encoder.blocks[0].attention.query.kernel
    kernel.assign(kernel + 1.0)
    adapted(model).save_pretrained(str(tmp_path), adapters=True)
    # Another head may be trained further: adapters bring their own.
    same.classification.classifier.bias.assign([1.0, 2.0, 3.0])
    same.load_adapters(str(tmp_path))
    assert capsys.readouterr().out == ""
    other.load_adapters(str(tmp_path))
    assert capsys.readouterr().out == (
        f"WARNING: {tmp_path}: these adapters were trained on a model with "
        "other weights than this one's, and may be of no use to it.\n"
    )


def test_adapters_that_change_nothing_are_added_to_the_same_weights(tmp_path):
    model = AlbertModel(CONFIG)
    weights = model.get_weights()
    add_adapters(model, 2, 0.0, trains_pooler=False)
    model.save_pretrained(str(tmp_path), adapters=True)
    again = AlbertModel(CONFIG)
    again.set_weights(weights)
    again.load_adapters(str(tmp_path))
    assert again.encoder.blocks[0].attention.query.lora_enabled


def test_adapters_that_the_weights_have_already(tmp_path):
    model = adapted(AlbertForClassification(CONFIG, 3))
    model.save_pretrained(str(tmp_path / "model"))
    model.save_pretrained(str(tmp_path / "adapters"), adapters=True)
    merged = AlbertForClassification.from_pretrained(str(tmp_path / "model"))
    with pytest.raises(UserError, match="the model's weights have these adap"):
        merged.load_adapters(str(tmp_path / "adapters"))
    np.testing.assert_allclose(
        merged(IDS)["logits"], model(IDS)["logits"], rtol=1e-5
    )


def test_new_adapters_do_not_hide_those_in_the_weights(tmp_path):
    model = adapted(AlbertModel(CONFIG))
    model.save_pretrained(str(tmp_path / "model"))
    model.save_pretrained(str(tmp_path / "adapters"), adapters=True)
    merged = adapted(AlbertModel.from_pretrained(str(tmp_path / "model")))
    with pytest.raises(UserError, match="the model's weights have these adap"):
        merged.load_adapters(str(tmp_path / "adapters"))


@pytest.mark.parametrize(
    ("model", "prefix", "whole"),
    [
        (lambda: AlbertModel(CONFIG, pooler=False), "", []),
        (lambda: AlbertForSentenceEmbedding(CONFIG), "", []),
        (
            lambda: AlbertForClassification(CONFIG, 3),
            "albert.",
            ["classifier.bias", "classifier.weight"],
        ),
    ],
)
def test_files_are_those_of_peft(tmp_path, model, prefix, whole):
    adapted(model()).save_pretrained(str(tmp_path), adapters=True)
    arrays = safetensors.numpy.load_file(tmp_path / "adapter_model.safetensors")
    shapes = {
        f"{prefix}{QUERY}.lora_A.weight": (2, 8),
        f"{prefix}{QUERY}.lora_B.weight": (8, 2),
    } | {name: (3, 8)[: 2 - ("bias" in name)] for name in whole}
    assert {n: a.shape for n, a in arrays.items()} == {
        f"base_model.model.{name}": shape for name, shape in shapes.items()
    }
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == (
        *("LORA", 2, 6),
    )
    assert config["target_modules"] == [prefix + QUERY]
    assert config["modules_to_save"] == (["classifier"] if whole else None)


def test_nothing_that_was_trained_is_lost(tmp_path):
    model = AlbertModel(CONFIG)
    with pytest.raises(UserError, match="^The model has no adapters; "):
        model.save_pretrained(str(tmp_path), adapters=True)
    adapted(model)
    model.encoder.embeddings.word_embeddings.trainable = True
    with pytest.raises(
        UserError,
        match=r"^Adapters hold nothing of \S+/word_embeddings \(1 weights of ",
    ):
        model.save_pretrained(str(tmp_path), adapters=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_dora": True}, "use_dora=True; only adapters with use_dora=Fal"),
        (
            {"peft_type": "IA3"},
            r"'LORA' are read.*with merge_and_unload\(\)\.$",
        ),
        ({"init_lora_weights": "pissa"}, "^.*='pissa' the model's own weights"),
        ({"alora_invocation_tokens": [5]}, "adapters are read that count for"),
        ({"r": 3}, "^.*adapter_model.safetensors does not fit the model: enc"),
        ({"r": "2"}, "r='2' and lora_alpha=6 must be a whole number"),
    ],
)
def test_adapters_that_do_not_fit_change_nothing(tmp_path, changes, message):
    adapted(AlbertModel(CONFIG)).save_pretrained(str(tmp_path), adapters=True)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    model = AlbertModel(CONFIG)
    before = np.array(model(IDS)["sequence_output"])
    with pytest.raises(UserError, match=message):
        model.load_adapters(str(tmp_path))
    np.testing.assert_array_equal(model(IDS)["sequence_output"], before)


def test_a_factor_by_the_root_of_the_rank(tmp_path):
    adapted(AlbertModel(CONFIG)).save_pretrained(str(tmp_path), adapters=True)
    path = tmp_path / "adapter_config.json"
    values = json.loads(path.read_text()) | {"use_rslora": True}
    path.write_text(json.dumps(values))
    model = AlbertModel(CONFIG)
    model.load_adapters(str(tmp_path))
    layer = model.encoder.blocks[0].attention.query
    assert layer.lora_alpha / layer.lora_rank == pytest.approx(6 / 2**0.5)


def test_adapters_of_another_model_are_named(tmp_path):
    adapted(AlbertForClassification(CONFIG, 3)).save_pretrained(
        str(tmp_path), adapters=True
    )
    with pytest.raises(UserError, match="nothing here is called classifier"):
        AlbertModel(CONFIG).load_adapters(str(tmp_path))


@pytest.mark.parametrize(
    ("sharing", "attentions"), [("all", 1), ("attention", 1), ("none", 2)]
)
def test_adapters_are_trained_with_the_head_alone(sharing, attentions):
    model = AlbertForClassification(override(CONFIG, {"sharing": sharing}), 3)
    total = sum(weight.size for weight in model.get_weights())
    line = add_adapters(model, 2, 0.0, trains_pooler=False)
    layers = {
        id(layer): layer
        for block in model.encoder.blocks
        for layer in (block.attention.query, block.attention.value)
    }
    assert len(layers) == 2 * attentions
    expected = {
        v.path
        for layer in layers.values()
        for v in (layer.lora_kernel_a, layer.lora_kernel_b)
    } | {v.path for v in model.classification.weights}
    assert {v.path for v in model.trainable_variables} == expected
    assert {layer.lora_alpha for layer in layers.values()} == {2}
    # Two factors of 8 x 2 for each layer, and 8 x 3 + 3 in the head.
    trained = 2 * attentions * 2 * 16 + 27
    total += trained - 27
    assert f"of rank 2: {trained} of {total:,} parameters are trained" in line


def test_a_new_pooler_is_trained_too():
    model = AlbertForClassification(CONFIG, 3)
    add_adapters(model, 2, 6.0, trains_pooler=True)
    trained = {id(v) for v in model.trainable_variables}
    assert all(id(v) in trained for v in model.encoder.pooler.weights)
    assert model.encoder.blocks[0].attention.query.lora_alpha == 6.0
