"""Settings: what is accepted, what is refused and with which words."""

import dataclasses
import json
import os

import pytest

from albert_tf.config import (
    PRESETS,
    FinetuneConfig,
    FinetuneSettings,
    MaskingConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainConfig,
    PretrainingDataConfig,
    PretrainingSettings,
    TrainingConfig,
    UserError,
    differences,
    from_dict,
    lookup,
    override,
    preset,
    require,
    setting_fields,
    to_dict,
)
from albert_tf.io.json_files import (
    MAX_JSON_BYTES,
    read_at_most,
    read_json,
    write_json,
)
from albert_tf.text.vocabulary_limits import MAX_PIECES, check_number_of_pieces
from tests.counted_work import steps_below

SECTIONS = (
    ModelConfig,
    MaskingConfig,
    PretrainingDataConfig,
    PretrainingSettings,
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
        for bound in ("minimum", "maximum"):
            value = field.metadata[bound]
            if value is not None:
                value = field.type(value)
                changes = {name: value, **beside(name, value)}
                assert getattr(override(config, changes), name) == value


def beside(name, value):
    """What another setting must be for one to be at its bound."""
    if name in ("hidden_size", "num_attention_heads"):
        other = {"num_attention_heads", "hidden_size"} - {name}
        return {
            other.pop(): value,
            "num_hidden_layers": 1,
            "embedding_size": 1,
            "intermediate_size": 1,
        }
    return {"num_hidden_layers": value} if name == "num_hidden_groups" else {}


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
            "hidden_size=65536, .* 24 blocks could hold .* the most allowed",
        ),
        ({"intermediate_size": 2**18, "num_hidden_layers": 1024}, "weights"),
        ({"vocab_size": 2**24, "embedding_size": 2**16}, "weights"),
    ],
)
def test_sizes_that_are_too_much_together(changes, text):
    with pytest.raises(UserError, match=text) as caught:
        override(ModelConfig(), changes)
    assert "\n" not in str(caught.value)


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
    assert len(names) == len(set(names))
    assert sorted(setting_fields(config)) == sorted(names)


def test_configs_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().hidden_size = 1


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_builds(name):
    config = override(PretrainConfig(), preset(name))
    sections = [
        getattr(config, field.name) for field in dataclasses.fields(config)
    ]
    for key, value in preset(name).items():
        assert any(getattr(section, key, None) == value for section in sections)


# The paper's Table 1: layers, H, heads, feed-forward.
SHAPES = {
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
    "xlarge": (24, 2048, 16, 8192),
    "xxlarge": (12, 4096, 64, 16384),
}


def shape_of(model):
    return (
        model.num_hidden_layers,
        model.hidden_size,
        model.num_attention_heads,
        model.intermediate_size,
    )


@pytest.mark.parametrize(
    ("name", "dropout", "steps"),
    [
        ("base_v1", 0.1, 125_000),
        ("large_v1", 0.1, 125_000),
        ("xlarge_v1", 0.1, 125_000),
        ("xxlarge_v1", 0.0, 1_500_000),
        ("base_v2", 0.0, 10_000_000),
        ("large_v2", 0.0, 3_000_000),
        ("xlarge_v2", 0.0, 3_000_000),
        ("xxlarge_v2", 0.0, 3_000_000),
    ],
)
def test_the_released_models(name, dropout, steps):
    config = override(PretrainConfig(), preset(name))
    model = config.model
    size, version = name.split("_")
    assert shape_of(model) == SHAPES[size]
    assert (model.embedding_size, model.sharing) == (128, "all")
    assert model.hidden_dropout_prob == dropout
    assert model.attention_probs_dropout_prob == dropout
    assert config.training.num_train_steps == steps
    assert config.training.train_batch_size == 4096
    assert config.optimizer == OptimizerConfig()
    assert config.pretraining.sentence_objective == ""
    if version == "v2":
        assert preset(size) == preset(name)


@pytest.mark.parametrize("size", ["base", "large", "xlarge"])
def test_bert_differs_from_albert_in_what_the_paper_compares(size):
    bert = to_dict(override(PretrainConfig(), preset(f"bert_{size}")))
    hidden = SHAPES[size][1]
    expected = to_dict(override(PretrainConfig(), preset(f"{size}_v1")))
    expected["model"] |= {"embedding_size": hidden, "sharing": "none"}
    expected["pretraining"] |= {"sentence_objective": "nsp"}
    assert bert == expected
    assert bert["model"]["hidden_dropout_prob"] == 0.1


def test_a_preset_of_the_paper_takes_back_what_another_has_set():
    first = override(PretrainConfig(), preset("bert_xlarge"))
    for name in set(PRESETS) - {"tiny", "mini", "small"}:
        assert override(first, preset(name)) == override(
            PretrainConfig(), preset(name)
        )


def test_tiny_is_what_its_recorded_runs_had():
    assert preset("tiny") == {
        "embedding_size": 64,
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 512,
        "initializer_range": 0.05,
        "max_position_embeddings": 128,
        "train_batch_size": 64,
        "num_train_steps": 2000,
        "num_warmup_steps": 100,
        "learning_rate": 0.01,
        "log_steps": 50,
        "eval_steps": 1000,
        "save_checkpoints_steps": 100,
        "keep_checkpoint_max": 2,
    }


def test_laptop_sizes_grow_and_set_the_same_things():
    rows = [preset(name) for name in ("tiny", "mini", "small")]
    assert rows[0].keys() == rows[1].keys() == rows[2].keys()
    for name in ("hidden_size", "num_hidden_layers", "intermediate_size"):
        sizes = [row[name] for row in rows]
        assert sizes == sorted(set(sizes))
    for row in rows:
        assert row["intermediate_size"] == 4 * row["hidden_size"]
        assert row["embedding_size"] < row["hidden_size"]
        assert row["num_warmup_steps"] <= row["num_train_steps"] / 10


def test_an_unknown_preset_is_answered_with_all():
    with pytest.raises(UserError, match="preset='huge' is not one of tiny, mi"):
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
        override(PretrainConfig(), preset("bert_xlarge") | {"vocab_size": 99}),
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
        ({"model": {"seed": 1}}, "^c.json: model has no setting 'seed'"),
        (
            {"model": {"y": 1, "x": 1}},
            "^c.json: model has no setting 'x', 'y'",
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
        (b'{"a": NaN}', "the key 'a' holds a number that is not finite"),
        (b'{"a": [-Infinity]}', "the key 'a' holds a number that is not fin"),
        (b'{"a": 1, "b": 1e400}', "the key 'b' holds a number that is not f"),
        (b'{"b": {"a": [[0, -1e400]]}}', "the key 'a' holds a number that"),
        (b"[1]", "is not a JSON object"),
        (b"7", "is not a JSON object"),
        (b"", "is not valid JSON"),
        (b'{"a": 1', "is not valid JSON"),
        (b'{"a": "\xff"}', "is not valid JSON: 'utf-8' codec can't decode"),
        ('{"a": 1}'.encode("utf-16"), "is not valid JSON: 'utf-8' codec"),
        (b'{"a": ' + b"[" * 400_000 + b"]" * 400_000 + b"}", "nested too deep"),
        (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "nested too deep"),
        (b'{"%s": 1, "%s": 1}' % (2 * (b"a" * 9**5,)), "the key 'a{76}"),
        (b'{"a": ' + b"1" * 5000 + b"}", "is not valid JSON"),
        (b" " * (MAX_JSON_BYTES + 1), "has 1048577 bytes; .* is refused"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_json_is_refused(tmp_path, content, text):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=text) as caught, steps_below(2000):
        read_json(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 250 + len(str(path))


def test_a_file_far_too_large_is_refused_unread(tmp_path):
    path = tmp_path / "huge.json"
    with open(path, "wb") as file:
        file.truncate(10**11)
    with pytest.raises(UserError, match="has 100000000000 bytes; .* refused"):
        read_json(path)


def test_a_file_that_hides_its_size_is_not_read_to_its_end(
    tmp_path, monkeypatch
):
    path = tmp_path / "growing.json"
    path.write_bytes(b" " * (MAX_JSON_BYTES + 9))
    monkeypatch.setattr("albert_tf.io.files.size", lambda path: 0)
    with pytest.raises(UserError, match="has 1048577 bytes; .* is refused"):
        read_json(path)


def test_pipes_and_devices_are_refused_unopened(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    os.symlink(tmp_path / "pipe.json", tmp_path / "link.json")
    for path in (tmp_path / "pipe.json", tmp_path / "link.json", "/dev/zero"):
        with pytest.raises(UserError, match="is a pipe or a device, not a f"):
            read_json(path)


def test_a_file_of_at_most_so_many_bytes(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_at_most(path, 5) == b"12345"
    for found, text in (
        (path, "has 5 bytes; more than 4 is refused"),
        (tmp_path, ": Is a directory"),
        (tmp_path / "none", ": No such file or directory"),
    ):
        with pytest.raises(UserError, match=f"^{found}:? ?{text.lstrip(': ')}"):
            read_at_most(found, 4)


def test_a_vocabulary_of_at_most_so_many_pieces():
    check_number_of_pieces(MAX_PIECES, "here")
    with pytest.raises(
        UserError, match="^here has 1,000,001 pieces; the most allowed is 1,000"
    ):
        check_number_of_pieces(MAX_PIECES + 1, "here")


def test_values_that_no_configuration_can_hold():
    for value in (10**4000, "x" * 10**6, ["y" * 10**6], {"z\n": 1}):
        for name in ("vocab_size", "learning_rate", "sharing"):
            with pytest.raises(UserError, match=name) as caught:
                from_dict(PretrainConfig, values_of(name, value), "c.json")
            message = str(caught.value)
            assert "\n" not in message
            assert len(message) < 250


def values_of(name, value):
    """Returns a configuration of one setting, in its section."""
    section = {"vocab_size": "model", "sharing": "model"}
    return {section.get(name, "optimizer"): {name: value}}


def test_unknown_names_are_cut_short():
    long = "hidden_sizes\n" + "x" * 10**6
    for values in ({long: 1}, {"model": {long: 1}}):
        with pytest.raises(UserError, match="'hidden_sizes") as caught:
            from_dict(PretrainConfig, values, "c.json")
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 1500


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


def test_a_condition_that_does_not_hold_is_a_user_error():
    require(True, "not raised")
    with pytest.raises(UserError, match="^steps=0: expected more$"):
        require(False, "steps=0: expected more")


def test_a_name_that_a_table_lacks_is_answered_with_its_rows():
    table = {"adamw": 1, "lamb": 2}
    assert lookup(table, "lamb", "optimizer") == 2
    for name, end in {"lamp": "; did you mean lamb?", "sgd": "."}.items():
        with pytest.raises(UserError) as caught:
            lookup(table, name, "optimizer")
        assert str(caught.value) == (
            f"optimizer='{name}' is not one of adamw, lamb{end}"
        )
