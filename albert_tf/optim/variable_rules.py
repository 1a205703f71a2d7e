"""Rules by variable paths: frozen, layer-wise learning rates, no decay."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from albert_tf.config import UserError, require

# Variables, by path, that neither decay nor adapt (the original's list), by the
# end of the path: it begins with the model's name, which a user chooses.
EXCLUDED_PATTERNS = (r"(LayerNorm|layer_norm)[^/]*(/[^/]*)?$", r"bias[^/]*$")
# Decays of Keras optimizers, in place of which ours have `weight_decay_rate`.
KERAS_DECAYS = ("weight_decay", "adam_weight_decay")
# A part of the paths of the variables of Keras' low-rank adapters.
_ADAPTER = "lora_kernel"
# Paths shown in an error message.
_SHOWN = 5


def path_patterns(setting: str, value: str) -> tuple[str, ...]:
    """Returns the comma-separated regular expressions of a setting.

    Raises:
        UserError: for an invalid expression.
    """
    patterns = tuple(filter(None, (part.strip() for part in value.split(","))))
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UserError(
                f"{setting}: {pattern!r} is not a regular expression "
                f"({error}). Expressions are separated by commas and cannot "
                "contain one; escape special characters by a backslash."
            ) from None
    return patterns


def path_of(variable: Any) -> str:
    """Returns a Keras variable's path, and the name of a plain tf.Variable."""
    return getattr(variable, "path", None) or variable.name


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Returns whether a pattern is found anywhere in a variable's path."""
    return any(re.search(pattern, path) for pattern in patterns)


def exclusions(argument: str, patterns: Sequence[str]) -> tuple[str, ...]:
    """Returns the patterns or raises ValueError for a string."""
    if isinstance(patterns, str):
        # Every letter would be a pattern.
        raise ValueError(
            f"{argument}={patterns!r} is one string; give a list of patterns."
        )
    return tuple(patterns)


def check_no_keras_decay(
    optimizer: keras.optimizers.Optimizer, arguments: Mapping[str, object]
) -> None:
    """Raises ValueError where arguments of an optimizer have such a decay."""
    for name in KERAS_DECAYS:
        if arguments.get(name) is not None:
            raise ValueError(
                f"{name}={arguments[name]} is Keras' own decay, which "
                f"{type(optimizer).__name__} does not use; give "
                "weight_decay_rate."
            )


def trained_variables(model: keras.Model, freeze: str) -> list[keras.Variable]:
    """Returns the trainable variables that `freeze` does not match.

    Raises:
        UserError: for an invalid expression, one that matches nothing, and
            when nothing, or nothing of a model's adapters, is left to train.
    """
    patterns = path_patterns("freeze", freeze)
    variables = model.trainable_variables
    paths = [variable.path for variable in variables]
    for pattern in patterns:
        if not any(matches(path, (pattern,)) for path in paths):
            few = ", ".join(paths[:: -(-len(paths) // _SHOWN) or 1])
            raise UserError(
                f"freeze: {pattern!r} matches none of the {len(paths)} "
                f"variables; some of them are {few}."
            )
    trained = [v for v in variables if not matches(v.path, patterns)]
    require(
        bool(trained),
        f"freeze={freeze!r} matches every variable; leave something to train.",
    )
    require(
        any(_ADAPTER in v.path for v in trained)
        or not any(_ADAPTER in path for path in paths),
        f"freeze={freeze!r} matches every low-rank adapter, so that none would "
        "be trained; lora_rank freezes the encoder by itself: leave freeze "
        "out, or lora_rank.",
    )
    return trained


def rate_multipliers(
    model: keras.Model, layer_decay: float
) -> dict[str, float]:
    """Returns the learning-rate multiplier of trainable weights, by path.

    Layer-wise learning-rate decay: 1 for the heads and the pooler,
    `layer_decay` for the last of the encoder's distinct blocks, its square
    for the one before, and so on in the order of first use, down to the
    embeddings and their projection. A part that several blocks share has the
    multiplier of the highest. (ELECTRA's `_get_layer_lrs` has one more level,
    between the last layer and the task's own weights.)
    """
    encoder = model.encoder
    multipliers = {v.path: 1.0 for v in model.trainable_variables}
    lowest = [encoder.embeddings, encoder.projection]
    levels = [filter(None, lowest), *([block] for block in encoder.blocks)]
    # Levels are visited from below, so that the highest block with a part
    # decides.
    for level, layers in enumerate(levels):
        multiplier = layer_decay ** (len(levels) - level)
        for layer in layers:
            for variable in layer.trainable_variables:
                multipliers[variable.path] = multiplier
    return multipliers
