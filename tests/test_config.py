"""Settings: checked, overridden, compared and stored; presets."""

import dataclasses
import json

import pytest

from albert_tf.config import (
    PRESETS,
    FinetuneConfig,
    MaskingConfig,
    ModelConfig,
    PretrainConfig,
    PretrainingDataConfig,
    UserError,
    differences,
    from_dict,
    listed,
    lookup,
    override,
    preset,
    setting_fields,
    shown_metric,
    to_dict,
)
from albert_tf.config.schedules import numbers_of

# Recipes for machines of two cores.
LAPTOP = ("tiny", "mini", "small", "evening")
# Before a test of the documents adds one.
OF_THE_PAPER = sorted(set(PRESETS) - set(LAPTOP))


def test_override_reaches_into_sections():
    changes = {"hidden_size": 96, "beta_2": 0.9, "max_ngram": 1, "seed": 5}
    # Dependent settings change together; an integer serves as a float.
    changes |= {"num_attention_heads": 16, "learning_rate": 1}
    config = override(PretrainConfig(), changes)
    assert type(config.optimizer.learning_rate) is float
    assert config.model.hidden_size == 96
    assert config.optimizer.beta_2 == 0.9
    assert config.masking.max_ngram == 1
    assert config.training.seed == 5
    default = PretrainConfig()
    fields = setting_fields(default)
    undone = {name: fields[name].default for name in changes}
    assert override(config, undone) == default
    # A setting that a dictionary lacks has its default; one that is no more
    # is left out.
    assert from_dict(
        PretrainConfig, {"training": {"seed": 3}}, "a.json"
    ) == override(default, {"seed": 3})


@pytest.mark.parametrize(
    ("config", "name", "text"),
    [
        (PretrainConfig, "hiden_size", "setting; did you mean hidden_size"),
        (PretrainConfig, "model", "'model' is not a setting"),
        (MaskingConfig, "qqq", "known settings: favor_shorter_ngram"),
    ],
)
def test_an_unknown_setting_is_answered_with_known_ones(config, name, text):
    with pytest.raises(UserError, match=text):
        override(config(), {name: 1})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("num_train_steps", True, "=True is of type bool; expected int."),
        ("num_train_steps", 1.0, "=1.0 is of type float; expected int."),
        ("favor_shorter_ngram", 1, "=1 is of type int; expected bool."),
        ("micro_batch_size", "no", "='no' .* str; expected int or auto."),
        ("sharing", "some", "'some' is not one of all, attention, ffn, none"),
        ("sharing", "some", "A row of your own needs --import, with its mod"),
        ("vocab_size", 5, "vocab_size=5 is below the minimum, 6."),
        ("beta_1", 1.0, "beta_1=1.0 is above the maximum, 0.9999999."),
        ("learning_rate", float("nan"), "=nan is not a finite number."),
        pytest.param("learning_rate", 10**400, "learning_rate", id="huge"),
        ("hidden_size", 770, "hidden_size=770 is not a multiple of num_atten"),
        ("num_hidden_groups", 13, "num_hidden_groups=13 exceeds num_hidden_l"),
    ],
)
def test_a_bad_value_is_refused(name, value, text):
    with pytest.raises(UserError, match=text) as caught:
        override(PretrainConfig(), {name: value})
    assert "\n" not in str(caught.value)


def test_every_count_of_a_model_has_its_bounds():
    for name, field in setting_fields(ModelConfig).items():
        if field.type is int:
            assert field.metadata["minimum"] >= 1, name
            assert field.metadata["maximum"] <= 2**24, name


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"num_hidden_layers": 1024, "inner_group_num": 2},
            "num_hidden_layers=1024 times inner_group_num=2 makes 2048 blocks",
        ),
        (
            {
                "hidden_size": 2**16,
                "num_attention_heads": 1,
                "num_hidden_layers": 24,
            },
            "hidden_size=65536, .* 24 blocks could hold .* the maximum is",
        ),
        ({"vocab_size": 2**24, "embedding_size": 2**16}, "weights"),
    ],
)
def test_sizes_that_are_too_large_together(changes, text):
    with pytest.raises(UserError, match=text):
        override(ModelConfig(), changes)


def test_large_real_models_are_within_bounds():
    bert = {"embedding_size": 8192, "hidden_size": 8192, "sharing": "none"}
    deep = {"num_hidden_layers": 96, "intermediate_size": 32768}
    override(ModelConfig(), bert | deep | {"num_attention_heads": 64})
    override(ModelConfig(), {"vocab_size": 10**6, "hidden_size": 4800})
    override(ModelConfig(), {"num_hidden_layers": 1024, "sharing": "none"})


@pytest.mark.parametrize("config", [PretrainConfig, FinetuneConfig])
def test_setting_names_are_unique_over_sections(config):
    names = [
        field.name
        for section in dataclasses.fields(config)
        for field in dataclasses.fields(section.type)
    ]
    assert sorted(setting_fields(config)) == sorted(names)


# Layers, hidden size, heads, feed-forward (paper, Table 1); dropout, steps.
RELEASED = {
    "base_v1": (12, 768, 12, 3072, 0.1, 125_000),
    "large_v1": (24, 1024, 16, 4096, 0.1, 125_000),
    "xlarge_v1": (24, 2048, 16, 8192, 0.1, 125_000),
    "xxlarge_v1": (12, 4096, 64, 16384, 0.0, 1_500_000),
    "base_v2": (12, 768, 12, 3072, 0.0, 10_000_000),
    "large_v2": (24, 1024, 16, 4096, 0.0, 3_000_000),
    "xlarge_v2": (24, 2048, 16, 8192, 0.0, 3_000_000),
    "xxlarge_v2": (12, 4096, 64, 16384, 0.0, 3_000_000),
}


@pytest.mark.parametrize("name", RELEASED)
def test_the_released_models(name):
    layers, hidden, heads, feed_forward, dropout, steps = RELEASED[name]
    expected = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": feed_forward,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "num_train_steps": steps,
    }
    config = override(PretrainConfig(), preset(name))
    assert config == override(PretrainConfig(), expected)
    size, _, version = name.partition("_")
    if version == "v2":
        assert preset(size) == preset(name)


@pytest.mark.parametrize("size", ["base", "large", "xlarge"])
def test_bert_differs_from_albert_in_what_the_paper_compares(size):
    bert = override(PretrainConfig(), preset(f"bert_{size}"))
    changes = {
        "embedding_size": preset(size)["hidden_size"],
        "sharing": "none",
        "sentence_objective": "nsp",
    }
    albert = override(PretrainConfig(), preset(f"{size}_v1"))
    assert bert == override(albert, changes)


def test_a_preset_of_the_paper_undoes_another():
    first = override(PretrainConfig(), preset("bert_xlarge"))
    for name in OF_THE_PAPER:
        assert override(first, preset(name)) == override(
            PretrainConfig(), preset(name)
        )


def test_laptop_sizes_are_evaluated_by_a_tenth_of_the_run():
    # Then a run that does not learn is reported.
    for name in LAPTOP:
        row = preset(name)
        assert 10 * row["eval_steps"] <= row["num_train_steps"]


def test_a_preset_is_a_copy_of_its_row():
    preset("tiny")["hidden_size"] = 1
    assert preset("tiny")["hidden_size"] == PRESETS["tiny"]["hidden_size"] > 1
    with pytest.raises(UserError, match="preset='huge' is not one of tiny, mi"):
        preset("huge")


@pytest.mark.parametrize(
    ("cap", "share", "length", "slots"),
    [(0, 0.15, 512, 77), (20, 0.15, 512, 20), (0, 0, 8, 1)],
)
def test_prediction_slots(cap, share, length, slots):
    config = MaskingConfig(max_predictions_per_seq=cap, masked_lm_prob=share)
    assert config.prediction_slots(length) == slots


@pytest.mark.parametrize(
    "config",
    [
        override(FinetuneConfig(), {"max_seq_length": 64, "beta_1": 0.5}),
        override(PretrainConfig(), preset("bert_xlarge") | {"vocab_size": 99}),
        PretrainingDataConfig(eval_fraction=0.25, record_kind="static"),
    ],
)
def test_dictionaries_round_trip_through_json(config):
    values = json.loads(json.dumps(to_dict(config)))
    assert from_dict(type(config), values, "a.json") == config


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"model": 3}, "model is not an object"),
        ({"model": {"y": 1, "x": 1}}, ". is not a setting; known settings"),
        ({"modle": {}}, "'modle' is not a setting"),
        ({"training": {"seed": -1}}, "seed=-1 is below"),
        # A message quotes no more than a line.
        ({"model": {"sharing": 10**4000}}, "is of type int; expected str"),
        ({"model": {"sharing": {"z\n": 1}}}, "is of type dict; expected str"),
        (
            {"optimizer": {"learning_rate": ["y" * 10**6]}},
            "is of type list; expected float",
        ),
        (
            {"model": {"hidden_sizes\n" + "x" * 10**6: 1}},
            "is not a setting; known settings",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_from_dict_names_its_source(values, text):
    with pytest.raises(UserError, match=f"^c.json: .*{text}") as caught:
        from_dict(PretrainConfig, values, "c.json")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1500


def test_names_that_hold_a_comma_are_quoted_in_a_list():
    assert listed(["neg", "pos, yes"]) == "neg, 'pos, yes'"
    assert listed(["a, b", "c"], separator="; ") == "a, b; c"
    assert listed(["a, b"]) == "a, b"
    # Whole differences have commas and quotes of their own.
    assert listed(["a; b", "c"], separator="; ", longest=None) == "a; b; c"


def test_one_name_is_listed_however_long_it_is():
    path = 400 * "a"
    assert listed([path, "b", "c"], longest=None) == f"{path} and 2 others"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.87654321, "0.8765"),
        (-0.01, "-0.0100"),
        (88.0, "88.0000"),
        (0.0, "0.0000"),
        (1.26764e-12, "1.268e-12"),
        (-0.000836612, "-0.0008366"),
        (float("nan"), "nan"),
    ],
)
def test_a_small_metric_is_shown_by_its_digits(value, text):
    assert shown_metric(value) == text


def test_differences_are_listed_one_by_one():
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


def test_a_name_that_a_table_lacks_is_answered_with_its_rows():
    table = {"adamw": 1, "lamb": 2}
    assert lookup(table, "lamb", "optimizer") == 2
    for name, end in {"lamp": "; did you mean lamb?", "sgd": "."}.items():
        with pytest.raises(UserError) as caught:
            lookup(table, name, "optimizer")
        assert str(caught.value) == (
            f"optimizer='{name}' is not one of adamw, lamb{end}"
        )


def test_a_number_for_each_phase():
    assert numbers_of("phases", "90, 10", 2) == [90, 10]
    for text in ("90", "90,10,1", "90,0", "90,-1", "a,b", ""):
        with pytest.raises(UserError, match="phases=.* for each of the 2 dir"):
            numbers_of("phases", text, 2)
