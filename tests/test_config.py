"""Settings: what is accepted, what is refused and with which words."""

import dataclasses
import json
import os

import pytest

from albert_tf.config import (
    MAX_JSON_BYTES,
    PRESETS,
    FinetuneConfig,
    FinetuneSettings,
    MaskingConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainConfig,
    PretrainingDataConfig,
    TrainingConfig,
    UserError,
    differences,
    from_dict,
    override,
    preset,
    read_json,
    setting_fields,
    to_dict,
    write_json,
)

SECTIONS = (
    ModelConfig,
    MaskingConfig,
    PretrainingDataConfig,
    OptimizerConfig,
    TrainingConfig,
    FinetuneSettings,
)


def test_override_reaches_into_sections():
    config = override(
        PretrainConfig(),
        {"hidden_size": 96, "beta_2": 0.9, "max_ngram": 1, "seed": 5},
    )
    assert config.model.hidden_size == 96
    assert config.optimizer.beta_2 == 0.9
    assert config.masking.max_ngram == 1
    assert config.training.seed == 5
    untouched = override(
        config,
        {"hidden_size": 768, "beta_2": 0.999, "max_ngram": 3, "seed": 12345},
    )
    assert untouched == PretrainConfig()


def test_override_of_a_flat_config_leaves_the_original_alone():
    before = ModelConfig()
    after = override(before, {"sharing": "ffn", "embedding_size": 32})
    assert (after.sharing, after.embedding_size) == ("ffn", 32)
    assert before == ModelConfig()
    assert (
        dataclasses.replace(after, sharing="all", embedding_size=128)
        == ModelConfig()
    )


def test_override_changes_dependent_settings_together():
    config = override(
        ModelConfig(), {"num_attention_heads": 5, "hidden_size": 10}
    )
    assert (config.hidden_size, config.num_attention_heads) == (10, 5)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("hiden_size", "did you mean hidden_size"),
        ("learning_rat", "did you mean learning_rate"),
        ("train_batchsize", "did you mean train_batch_size"),
    ],
)
def test_an_unknown_setting_is_answered_with_the_nearest(name, hint):
    with pytest.raises(UserError, match=f"'{name}' is not a setting; {hint}"):
        override(PretrainConfig(), {name: 1})


def test_an_unknown_setting_near_none_is_answered_with_all():
    with pytest.raises(UserError, match="known settings: favor_shorter_ngram"):
        override(MaskingConfig(), {"qqq": 1})


def test_a_section_is_not_a_setting():
    with pytest.raises(UserError, match="'model' is not a setting"):
        override(PretrainConfig(), {"model": {}})


def test_an_integer_serves_as_a_float():
    rate = override(OptimizerConfig(), {"learning_rate": 1}).learning_rate
    assert type(rate) is float
    assert rate == 1.0


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("num_train_steps", True, "num_train_steps=True is of type bool; int"),
        ("learning_rate", True, "learning_rate=True is of type bool; float"),
        ("num_train_steps", 1.0, "num_train_steps=1.0 is of type float; int"),
        ("num_train_steps", "9", "num_train_steps='9' is of type str; int"),
        (
            "favor_shorter_ngram",
            1,
            "=1 is of type int; bool is",
        ),
        ("sharing", None, "sharing=None is of type NoneType; str"),
        ("sharing", "some", "'some' is not one of all, attention, ffn, none"),
        ("hidden_act", "swish", "not one of gelu, gelu_exact, relu"),
        ("optimizer", "sgd", "optimizer='sgd' is not one of lamb, adamw"),
        ("vocab_size", 5, "vocab_size=5 is below the least allowed, 6"),
        ("beta_1", 1.0, "beta_1=1.0 is above the most allowed, 0.9999999"),
        ("hidden_dropout_prob", -0.1, "-0.1 is below the least allowed, 0.0"),
        ("learning_rate", float("nan"), "learning_rate.* number"),
        ("learning_rate", float("inf"), "learning_rate.* number"),
        pytest.param("learning_rate", 10**400, "learning_rate", id="huge"),
        ("hidden_size", 770, "hidden_size=770 is not a multiple of num_atten"),
        ("num_hidden_groups", 13, "num_hidden_groups=13 exceeds num_hidden_l"),
    ],
)
def test_a_bad_value_is_refused(name, value, text):
    with pytest.raises(UserError, match=text) as caught:
        override(PretrainConfig(), {name: value})
    assert "\n" not in str(caught.value)


def test_the_constructor_checks_too():
    with pytest.raises(UserError, match="num_hidden_layers=0 is below"):
        ModelConfig(num_hidden_layers=0)


@pytest.mark.parametrize("section", SECTIONS)
def test_bounds_are_inclusive_and_defaults_within_them(section):
    config = section()
    for name, field in setting_fields(section).items():
        assert field.metadata["help"]
        assert type(getattr(config, name)) is field.type
        # Bounds that another setting narrows further are left out.
        if name in ("hidden_size", "num_attention_heads"):
            continue
        for bound in ("minimum", "maximum"):
            value = field.metadata[bound]
            if value is not None:
                changed = override(config, {name: field.type(value)})
                assert getattr(changed, name) == value


@pytest.mark.parametrize("config", [PretrainConfig, FinetuneConfig])
def test_setting_names_are_unique_over_sections(config):
    names = [
        field.name
        for section in dataclasses.fields(config)
        for field in dataclasses.fields(section.type)
    ]
    assert len(names) == len(set(names))
    assert sorted(setting_fields(config)) == sorted(names)


def test_configs_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().hidden_size = 1


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_builds(name):
    config = override(PretrainConfig(), preset(name))
    for key, value in preset(name).items():
        assert any(
            getattr(section, key, None) == value
            for section in (config.model, config.optimizer, config.training)
        )


def test_the_papers_sizes():
    sizes = {}
    for name in ("base", "large", "xlarge", "xxlarge"):
        model = override(PretrainConfig(), preset(name)).model
        sizes[name] = (
            model.num_hidden_layers,
            model.hidden_size,
            model.num_attention_heads,
            model.intermediate_size,
            model.embedding_size,
            model.hidden_dropout_prob,
        )
    assert sizes == {
        "base": (12, 768, 12, 3072, 128, 0.0),
        "large": (24, 1024, 16, 4096, 128, 0.0),
        "xlarge": (24, 2048, 16, 8192, 128, 0.0),
        "xxlarge": (12, 4096, 64, 16384, 128, 0.0),
    }


def test_an_unknown_preset_is_answered_with_all():
    with pytest.raises(UserError, match="preset='huge' is not one of tiny, ba"):
        preset("huge")


def test_a_preset_is_a_copy():
    preset("tiny")["hidden_size"] = 1
    assert preset("tiny")["hidden_size"] == 128


@pytest.mark.parametrize(
    ("cap", "share", "length", "slots"),
    [
        (0, 0.15, 512, 77),
        (0, 0.15, 128, 19),
        (20, 0.15, 512, 20),
        (0, 0, 8, 1),
    ],
)
def test_prediction_slots(cap, share, length, slots):
    config = MaskingConfig(max_predictions_per_seq=cap, masked_lm_prob=share)
    assert config.prediction_slots(length) == slots


@pytest.mark.parametrize(
    "config",
    [
        override(PretrainConfig(), {"sharing": "ffn", "seed": 7}),
        override(FinetuneConfig(), {"max_seq_length": 64, "beta_1": 0.5}),
        override(ModelConfig(), preset("xlarge") | {"vocab_size": 99}),
        PretrainingDataConfig(eval_fraction=0.25, record_kind="static"),
    ],
)
def test_dictionaries_round_trip_through_json(config):
    values = json.loads(json.dumps(to_dict(config)))
    assert from_dict(type(config), values, "a.json") == config


def test_what_a_dictionary_leaves_out_keeps_its_default():
    config = from_dict(PretrainConfig, {"training": {"seed": 3}}, "a.json")
    assert config == override(PretrainConfig(), {"seed": 3})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"model": 3}, "^c.json: model is not an object"),
        ({"model": {"seed": 1}}, "^c.json: model has no setting seed"),
        (
            {"model": {"y": 1, "x": 1}},
            "^c.json: model has no setting x, y",
        ),
        ({"modle": {}}, "^c.json: 'modle' is not a setting"),
        ({"training": {"seed": -1}}, "^c.json: seed=-1 is below"),
    ],
)
def test_from_dict_names_its_source(values, text):
    with pytest.raises(UserError, match=text):
        from_dict(PretrainConfig, values, "c.json")


def test_differences_are_told_one_by_one():
    ours = to_dict(PretrainConfig())
    theirs = to_dict(override(PretrainConfig(), {"sharing": "ffn", "seed": 1}))
    assert differences(ours, ours) == []
    assert differences(ours, theirs) == [
        "model.sharing: 'all' here, 'ffn' there",
        "training.seed: 12345 here, 1 there",
    ]
    assert differences({"a": 1}, {"b": 2}) == [
        "a: 1 here, None there",
        "b: None here, 2 there",
    ]


def test_json_round_trip(tmp_path):
    value = {"name": "naïve ▁ü", "list": [1, 2.5, None, True], "o": {}}
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    write_json(path, value)
    assert read_json(path) == value
    assert read_json(str(path)) == value
    assert path.read_bytes().endswith(b"}\n")
    assert "▁" in path.read_text(encoding="utf-8")
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'{"a": 1, "a": 2}', "not valid JSON: the key 'a' appears twice"),
        (b'{"b": {"a": 1, "a": 1}}', "the key 'a' appears twice"),
        (b'{"a": NaN}', "NaN is not a number that JSON allows"),
        (b'{"a": [-Infinity]}', "-Infinity is not a number that JSON allows"),
        (b"[1]", "is not a JSON object"),
        (b"7", "is not a JSON object"),
        (b"", "is not valid JSON"),
        (b'{"a": 1', "is not valid JSON"),
        (b'{"a": "\xff"}', "is not valid JSON"),
        (b'{"a": ' + b"[" * 400_000 + b"]" * 400_000 + b"}", "nested too deep"),
        (b'{"a": ' + b"1" * 5000 + b"}", "is not valid JSON"),
        (b" " * (MAX_JSON_BYTES + 1), "has 1048577 bytes; .* is refused"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_json_is_refused(tmp_path, content, text):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=text) as caught:
        read_json(path)
    assert str(path) in str(caught.value)


def test_json_as_large_as_allowed_is_read(tmp_path):
    path = tmp_path / "large.json"
    path.write_bytes(b"{}" + b" " * (MAX_JSON_BYTES - 2))
    assert read_json(path) == {}


def test_a_missing_file_and_a_directory_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"no\.json: No such file"):
        read_json(tmp_path / "no.json")
    with pytest.raises(UserError, match="Is a directory"):
        read_json(tmp_path)


def test_many_keys(tmp_path):
    path = tmp_path / "many.json"
    many = {f"k{i}": i for i in range(30_000)}
    path.write_text(json.dumps(many))
    assert read_json(path) == many


@pytest.mark.parametrize("value", [{"a": {1}}, {"a": float("nan")}])
def test_a_value_that_json_cannot_hold_leaves_the_old_file(tmp_path, value):
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    with pytest.raises((TypeError, ValueError)):
        write_json(path, value)
    assert read_json(path) == {"old": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_file_appears_by_renaming(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    seen = {}
    replace = os.replace

    def watch(source, target):
        seen["old"] = read_json(target)
        seen["new"] = read_json(source)
        seen["same_folder"] = os.path.dirname(source) == str(tmp_path)
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    write_json(path, {"new": 1})
    assert seen == {"old": {"old": 1}, "new": {"new": 1}, "same_folder": True}
    assert read_json(path) == {"new": 1}
