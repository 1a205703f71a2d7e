"""The `albert_config.json` of google-research/albert, read and written."""

import os
from collections.abc import Iterable, Mapping

from albert_tf.config import ModelConfig, UserError, override, require, shown
from albert_tf.io import files
from albert_tf.io.json_files import read_json
from albert_tf.modeling.weights.config_json import require_architecture
from albert_tf.modeling.weights.names import check_groups, file_groups

CONFIG_FILE = "albert_config.json"

# Keys of released configuration files that nothing reads.
_IGNORED_KEYS = frozenset(
    (
        "net_structure_type",
        "layers_to_keep",
        "gap_size",
        "num_memory_blocks",
        "down_scale_factor",
    )
)
# The arguments of the original's AlbertConfig.
_THEIR_KEYS = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_hidden_groups",
    "num_attention_heads",
    "intermediate_size",
    "inner_group_num",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
)
# Its activations that are ours under the same name (its "gelu" is the tanh
# form), and the epsilon that it always takes.
_THEIR_VALUES = {"hidden_act": ("gelu", "relu"), "layer_norm_eps": (1e-12,)}
# Settings that it lacks are within this key, and nowhere else. It ignores keys
# that it does not know.
_OWN_KEY = "albert_tf"
_OWN_SETTINGS = ("sharing", "num_hidden_groups", "classifier_dropout_prob")


def check_values(
    values: Mapping[str, object],
    allowed: Mapping[str, tuple[object, ...]],
    source: str,
) -> None:
    """Raises UserError where a setting has none of its allowed values."""
    for name, choices in allowed.items():
        require(
            values.get(name, choices[0]) in choices,
            f"{source}: {name}={shown(values.get(name))} is not one of "
            f"{', '.join(map(str, choices))}.",
        )


def _check_names(names: Iterable[str], known: tuple, source: str) -> None:
    unknown = sorted(set(names).difference(known))
    require(
        not unknown,
        f"{source} has no setting {', '.join(map(shown, unknown[:9]))}; it "
        f"has {', '.join(known)}.",
    )


def config_to_json(config: ModelConfig) -> dict:
    """Returns an `albert_config.json` that the original and we read.

    Raises:
        UserError: for settings that the original's code lacks.
    """
    values = vars(config)
    check_values(values, _THEIR_VALUES, "google-research/albert")
    return {
        **{name: values[name] for name in _THEIR_KEYS},
        "num_hidden_groups": file_groups(config, "google"),
        _OWN_KEY: {name: values[name] for name in _OWN_SETTINGS},
    }


def read_config(path: str) -> ModelConfig:
    """Returns the configuration in an `albert_config.json`.

    Differs from google-research/albert, which ignores unknown keys: they are
    refused, so that a misspelt setting is not replaced by its default.

    Raises:
        UserError: naming the file and the fault.
    """
    values = {
        name: value
        for name, value in read_json(path).items()
        if name not in _IGNORED_KEYS
    }
    own = values.pop(_OWN_KEY, {})
    require(
        isinstance(own, dict),
        f"{path}: expected {_OWN_KEY} to be an object, got {shown(own)}.",
    )
    _check_names(own, _OWN_SETTINGS, f"{path}: {_OWN_KEY}")
    _check_names(
        values.keys() - {"layer_norm_eps"},
        _THEIR_KEYS,
        f"{path}: google-research/albert",
    )
    check_values(values, _THEIR_VALUES, path)
    require_architecture(values, path)
    try:
        config = override(ModelConfig(), {**values, **own})
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    if not own:
        check_groups(config, "google", path)
    return config


def config_beside(path: str) -> ModelConfig:
    """Returns the configuration in the folder of a checkpoint.

    Raises:
        UserError: when there is none, or it is faulty.
    """
    config = os.path.join(os.path.dirname(path), CONFIG_FILE)
    require(
        files.exists(config),
        f"{config} is missing: the checkpoint {path} needs the configuration "
        "it was trained with in its folder.",
    )
    return read_config(config)
