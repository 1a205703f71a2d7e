"""Which variables are trained, and how fast: rules on their paths."""

import re

import keras

from albert_tf.config import UserError

# Paths that an error message shows.
_SHOWN = 5


def path_patterns(setting: str, value: str) -> tuple[str, ...]:
    """Returns the regular expressions of a setting, separated by commas.

    A variable is meant when one of them is found anywhere in its path. An
    empty setting has none.

    Args:
        setting: its name, for errors.
        value: what it says.

    Raises:
        UserError: for what is no regular expression.
    """
    patterns = tuple(filter(None, (part.strip() for part in value.split(","))))
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UserError(
                f"{setting}: {pattern!r} is not a regular expression "
                f"({error}). The expressions are separated by commas, so "
                "none can hold one; a backslash before a sign takes it as "
                "it is."
            ) from None
    return patterns


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Returns whether one of the patterns is found in a variable's path."""
    return any(re.search(pattern, path) for pattern in patterns)


def trained_variables(model: keras.Model, freeze: str) -> list[keras.Variable]:
    """Returns the trainable variables that `freeze` does not match.

    Args:
        model: any Keras model.
        freeze: regular expressions, see `path_patterns`.

    Raises:
        UserError: for a bad expression, for one that matches nothing, and
            when nothing is left to train.
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
    if not trained:
        raise UserError(
            f"freeze={freeze!r} matches every variable; leave something to "
            "train."
        )
    return trained


def rate_multipliers(
    model: keras.Model, layer_decay: float
) -> dict[str, float]:
    """Returns path -> multiple of the learning rate, of every trained weight.

    The heads and the pooler, which fine-tuning starts or turns to its own
    use, have 1. The last of the encoder's distinct blocks has `layer_decay`,
    the one before it its square, and so on in the order of first use; the
    embeddings and their projection come below the first block. So a block
    that all layers share is one level. A part that several blocks share
    (sharing "attention" or "ffn") has the rate of the highest of them.

    ELECTRA's code (`_get_layer_lrs`) has the same order, with one level more
    between its last layer and the task's own weights.

    Args:
        model: a model with an AlbertEncoder as `encoder`.
        layer_decay: from 0 to 1; 1 treats all alike.
    """
    encoder = model.encoder
    multipliers = {v.path: 1.0 for v in model.trainable_variables}
    lowest = [encoder.embeddings]
    if encoder.projection:
        lowest.append(encoder.projection)
    levels = [lowest, *([block] for block in encoder.blocks)]
    # From below, so that the highest block that has a part is the one.
    for level, layers in enumerate(levels):
        multiplier = layer_decay ** (len(levels) - level)
        for layer in layers:
            for variable in layer.trainable_variables:
                multipliers[variable.path] = multiplier
    return multipliers
