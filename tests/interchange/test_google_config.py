"""albert_config.json of google-research/albert, read and written."""

import dataclasses
import json
import re

import pytest

from albert_tf.config import ModelConfig, UserError, override
from albert_tf.interchange.google_config import (
    config_beside,
    config_to_json,
    read_config,
)

ARCHITECTURE = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)


def write_config(tmp_path, **values):
    """Writes the values beside the architecture of our defaults."""
    path = tmp_path / "albert_config.json"
    config = dataclasses.asdict(ModelConfig())
    architecture = {name: config[name] for name in ARCHITECTURE}
    path.write_text(json.dumps(architecture | values))
    return str(path)


def test_keys_that_nothing_reads_are_ignored(tmp_path):
    path = write_config(
        tmp_path,
        net_structure_type=0,
        layers_to_keep=[],
        gap_size=0,
        num_memory_blocks=0,
        down_scale_factor=1,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
        num_hidden_groups=2,
        inner_group_num=3,
        layer_norm_eps=1e-12,
    )
    assert read_config(path) == override(
        ModelConfig(), {"num_hidden_groups": 2, "inner_group_num": 3}
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"hiden_size": 8, "b\n" * 99: 1},
            r"google-research/albert has no setting 'b\\n.*\.\.\., "
            "'hiden_size'; it has vocab_size, ",
        ),
        # Our settings are within our key only.
        ({"sharing": "all"}, "google-research/albert has no setting 'sharing'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05 is not one of 1e-12"),
        ({"hidden_act": "swish"}, "hidden_act='swish' is not one of gelu"),
        ({"hidden_act": ["gelu"]}, r"hidden_act=\['gelu'\] is not one of gelu"),
        ({"hidden_size": "8"}, "hidden_size='8' is of type str"),
        ({"hidden_size": 770}, "hidden_size=770 is not a multiple of"),
        ({"albert_tf": None}, "expected albert_tf to be an object, got None"),
        ({"albert_tf": {"sharin": "all"}}, "albert_tf has no setting 'sharin'"),
        ({"albert_tf": {"hidden_size": 8}}, "albert_tf has no setting 'hid"),
        ({"albert_tf": {"sharing": "most"}}, "sharing='most' is not one of"),
    ],
)
def test_a_faulty_configuration(tmp_path, values, message):
    path = write_config(tmp_path, **values)
    with pytest.raises(UserError, match=f"^{re.escape(path)}: {message}"):
        read_config(path)


@pytest.mark.parametrize(
    "absent", [ARCHITECTURE, *([name] for name in ARCHITECTURE)]
)
def test_the_architecture_has_no_defaults(tmp_path, absent):
    path = write_config(tmp_path)
    with open(path) as file:
        values = json.load(file)
    values = {n: value for n, value in values.items() if n not in absent}
    with open(path, "w") as file:
        json.dump(values, file)
    with pytest.raises(
        UserError, match=f"^{path} lacks {' and '.join(absent)}"
    ):
        read_config(path)


def test_a_missing_configuration(tmp_path):
    with pytest.raises(UserError, match=r"albert_config\.json is missing"):
        config_beside(str(tmp_path / "model.ckpt"))


# The arguments of the constructor of the original's AlbertConfig.
THEIR_SETTINGS = [
    *ARCHITECTURE,
    "num_hidden_groups",
    "inner_group_num",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
]


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({"hidden_act": "relu", "initializer_range": 0.1}, 1),
        ({"num_hidden_groups": 3, "inner_group_num": 2}, 3),
        ({"sharing": "attention", "num_hidden_groups": 2}, 12),
        ({"sharing": "none", "classifier_dropout_prob": 0.25}, 12),
        ({"hidden_dropout_prob": 0.1, "type_vocab_size": 3}, 1),
        ({"num_hidden_layers": 7, "max_position_embeddings": 64}, 1),
    ],
)
def test_a_configuration_there_and_back(tmp_path, changes, groups):
    config = override(ModelConfig(), changes)
    values = config_to_json(config)
    assert sorted(values) == sorted([*THEIR_SETTINGS, "albert_tf"])
    # The groups of the checkpoint, which the original counts.
    expected = dataclasses.asdict(config) | {"num_hidden_groups": groups}
    assert {n: values[n] for n in THEIR_SETTINGS} == {
        n: expected[n] for n in THEIR_SETTINGS
    }
    assert read_config(write_config(tmp_path, **values)) == config


@pytest.mark.parametrize(
    "changes", [{"hidden_act": "gelu_exact"}, {"layer_norm_eps": 1e-5}]
)
def test_settings_that_the_original_lacks_are_not_written(changes):
    (name,) = changes
    with pytest.raises(UserError, match=f"^google-research/albert: {name}="):
        config_to_json(override(ModelConfig(), changes))
