"""Converts weights to another sharing mode, depth or number of positions.

Groups and inner groups may differ too: the sequence of applied blocks decides.
"""

from collections.abc import Iterator

import keras
import numpy as np

from albert_tf.config import UserError, lookup, require
from albert_tf.modeling.blocks import TransformerBlock

# Ways to make one weight of several: only equal ones, the mean over the
# layers, or the first layer's; and how the report calls them.
MERGES = {"equal": "equal", "mean": "the mean of", "first": "the first of"}

_POSITIONS = "encoder/embeddings/position_embeddings"
# Settings that change the outputs of equal weights.
_BESIDE_WEIGHTS = ("hidden_act", "layer_norm_eps", "pooling")

# An attention or feed-forward layer of the target, and for each of its
# applications, in order, the layer of the source that it replaces.
_Flow = tuple[keras.layers.Layer, list[keras.layers.Layer]]


def convert_weights(
    source: keras.Model, target: keras.Model, merge: str = "equal"
) -> list[str]:
    """Copies the weights of `source` into `target` of its class, all or none.

    Returns a line for each change that is more than a copy.

    The n-th block that the target applies takes its attention and its
    feed-forward from the n-th that the source applies. The numbers may
    differ where one of the two applies the same blocks in every layer: a
    repeated layer can be any layer of the target, and all layers of the
    source can be merged into a repeated one. Other weights are copied, and
    the table of positions is cut, or continued by repeating it from its
    start, as Longformer does (Beltagy et al. 2020, section 5), so that
    relations of near neighbours hold at the new positions too.

    Args:
        merge: how several weights of the source become one of the target:
            "equal", they must be equal to the bit; "mean", their mean over
            the layers; "first", that of the first layer.

    Raises:
        UserError: when class, number of heads or depth do not fit; naming
            each weight that is missing, misshapen, or to be one with another
            and not equal.
    """
    how = lookup(MERGES, merge, "merge")
    require(
        type(source) is type(target),
        f"{type(source).__name__} and {type(target).__name__} are different "
        "models; weights are converted within one kind.",
    )
    heads, wanted = (m.config.num_attention_heads for m in (source, target))
    # The shapes would fit; the columns would belong to other heads.
    require(
        heads == wanted,
        f"num_attention_heads={wanted} must be that of the weights' model, "
        f"{heads}.",
    )
    flows = _flows(source, target)
    stored, needed = _outside_blocks(source), _outside_blocks(target)
    missing = [path for path in needed if path not in stored]
    require(
        not missing,
        f"The weights' model has no {', '.join(missing)}, which the other "
        "model needs.",
    )
    # A variable of the target, and those of the source that flow into it.
    pairs = [(variable, [stored[path]]) for path, variable in needed.items()]
    for part, origins in flows:
        columns = (part.weights, *(origin.weights for origin in origins))
        pairs += [
            (first, others) for first, *others in zip(*columns, strict=True)
        ]
    _check_shapes(pairs)
    if merge == "equal":
        _check_equal(pairs)
    values = [_value(origins, merge) for _, origins in pairs]
    for (variable, _), value in zip(pairs, values, strict=True):
        # There may be more positions, or fewer.
        rows = np.arange(variable.shape[0]) % len(value)
        variable.assign(value[rows])
    unused = [path for path in stored if path not in needed]
    lines = list(_descriptions(source, target, flows, how))
    if unused:
        lines.append(f"Not needed: {', '.join(unused)}.")
    return lines


def _flows(source: keras.Model, target: keras.Model) -> list[_Flow]:
    """Returns the origins of every part of the target's blocks."""
    flows: dict[int, _Flow] = {}
    for taker, giver in _matches(source, target):
        block, origin = _application(target, taker), _application(source, giver)
        for part, other in (
            (block.attention, origin.attention),
            (block.feed_forward, origin.feed_forward),
        ):
            flows.setdefault(id(part), (part, []))[1].append(other)
    return list(flows.values())


def _matches(source: keras.Model, target: keras.Model) -> list[tuple[int, int]]:
    """Returns pairs of application numbers: the target's, the source's."""
    old, new = (len(model.encoder.plan) for model in (source, target))
    old_period, new_period = (
        model.config.inner_group_num for model in (source, target)
    )
    if old == new:
        return [(number, number) for number in range(new)]
    if _repeats(source) and new_period % old_period == 0:
        return [(number, number % old_period) for number in range(new)]
    if _repeats(target) and old_period % new_period == 0:
        return [(number % new_period, number) for number in range(old)]
    raise UserError(
        f"The {old} blocks of the weights' model cannot become {new}: the "
        "numbers may differ only where one of the two models applies the "
        'same blocks in every layer (sharing "all", one group).'
    )


def _repeats(model: keras.Model) -> bool:
    """Returns whether every layer applies the same blocks."""
    return len(set(model.encoder.plan)) == model.config.inner_group_num


def _application(model: keras.Model, number: int) -> TransformerBlock:
    return model.encoder.blocks[model.encoder.applications[number]]


def _outside_blocks(model: keras.Model) -> dict[str, keras.Variable]:
    blocks = model.encoder.blocks
    inside = {id(weight) for block in blocks for weight in block.weights}
    return {_path(v): v for v in model.weights if id(v) not in inside}


def _check_shapes(pairs: list[tuple]) -> None:
    faults = []
    for variable, origins in pairs:
        shape, wanted = tuple(origins[0].shape), tuple(variable.shape)
        if _path(variable) == _POSITIONS:
            shape, wanted = shape[1:], wanted[1:]
        if shape != wanted:
            faults.append(
                f"{_path(variable)} has shape {list(origins[0].shape)} and "
                f"the other model needs {list(variable.shape)}"
            )
    require(not faults, f"The weights do not fit: {'; '.join(faults)}.")


def _check_equal(pairs: list[tuple]) -> None:
    faults = []
    for _, (first, *others) in pairs:
        bits = _array(first).tobytes()
        for other in others:
            if other is not first and _array(other).tobytes() != bits:
                faults.append(f"{_path(first)} differs from {_path(other)}")
                break
    require(
        not faults,
        f"Weights that are to be one differ: {'; '.join(faults)}. Say how they "
        "are merged: mean or first.",
    )


def _value(origins: list[keras.Variable], merge: str) -> np.ndarray:
    if merge != "mean":
        return _array(origins[0])
    # In float64 the mean of equal float32 numbers is that number, exactly.
    total = _array(origins[0]).astype(np.float64)
    for origin in origins[1:]:
        total += _array(origin)
    return (total / len(origins)).astype(np.float32)


def _array(variable: keras.Variable) -> np.ndarray:
    return keras.ops.convert_to_numpy(variable)


def _path(part: keras.Variable | keras.layers.Layer) -> str:
    """Returns the path within the model, whatever the model is called."""
    return part.path.split("/", 1)[1]


def _descriptions(
    source: keras.Model, target: keras.Model, flows: list[_Flow], how: str
) -> Iterator[str]:
    """Yields a line for each change that is more than a copy."""
    for name in _BESIDE_WEIGHTS:
        old, new = (getattr(m.config, name) for m in (source, target))
        if old != new:
            yield f"{name} was {old} and is {new}: the outputs change."
    old, new = (len(model.encoder.plan) for model in (source, target))
    if old != new:
        yield f"{old} blocks were applied and {new} are: the outputs change."
    old, new = (m.config.max_position_embeddings for m in (source, target))
    if new > old:
        yield f"{_POSITIONS}: {old} rows, repeated until there are {new}."
    elif new < old:
        yield f"{_POSITIONS}: the first {new} of {old} rows."
    takers: dict[str, list[str]] = {}
    for part, parts in flows:
        path = _path(part)
        origins = list(dict.fromkeys(map(_path, parts)))
        if len(origins) > 1:
            yield f"{path}: {how} {', '.join(origins)}."
        for origin in origins:
            takers.setdefault(origin, []).append(path)
    for origin, paths in takers.items():
        if len(paths) > 1:
            yield f"{origin} is copied to {', '.join(paths)}."
