"""Checks of a model's inputs: features, and labels out of range.

Shapes and types are checked when a call is traced, values where they are known:
in NumPy arrays and eager tensors. A graph of TensorFlow carries assertions,
which XLA leaves out; a trace of another backend can raise nothing. Where Keras
only infers shapes, nothing is known.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import ModelConfig, UserError, require
from albert_tf.modeling.kernels import ON_TENSORFLOW

if ON_TENSORFLOW:
    import tensorflow as tf

ENCODER_INPUTS = ("input_ids", "input_mask", "segment_ids")
# The names of transformers' tokenizers, which are read too.
ALIASES = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}


def infers_shapes() -> bool:
    """Returns whether a call is made by Keras to infer the shapes of outputs.

    Its tensors then stand for those to come, of which they have the rank alone:
    Keras builds a model that is loaded with floats in place of ids, and on
    torch a size that is not known is 83, later 89.
    """
    with keras.SymbolicScope() as scope:
        return scope.original_scope is not None


def checked_features(
    features: Mapping[str, Tensor],
    config: ModelConfig,
    *,
    needed: Iterable[str],
    positions: Iterable[str],
    known: Iterable[str],
    in_graph: bool,
) -> dict[str, Tensor]:
    """Returns the features, with a mask of ones and segment 0 where absent.

    Args:
        needed: features of the heads beside the encoder's inputs.
        positions: those of them that are positions in the sequence.
        known: names of labels and weights, which may be among them.
        in_graph: whether a graph asserts the range of its values too.

    Raises:
        UserError: for names, shapes, types and values that do not fit.
    """
    needed = tuple(needed)
    features = _with_our_names(features)
    _check_names(features, needed, known)
    features = _with_defaults(features, needed)
    _check_shapes(features)
    ids = features["input_ids"] = _checked_length(features["input_ids"], config)
    limits = {
        "input_ids": (config.vocab_size, "vocab_size"),
        # Pairs have two segments, with a single embedding too.
        "segment_ids": (max(config.type_vocab_size, 2), "type_vocab_size"),
    }
    for name in positions:
        limits[name] = (ops.shape(ids)[-1], "sequence length")
    for name, (limit, limit_name) in limits.items():
        values = features[name]
        dtype = keras.backend.standardize_dtype(values.dtype)
        require(
            infers_shapes() or keras.backend.is_int_dtype(dtype),
            f"{name} must be integers; they are {dtype}.",
        )
        values = in_range(name, values, limit, limit_name, in_graph=in_graph)
        if dtype not in ("int32", "int64"):
            values = ops.cast(values, "int32")
        features[name] = values
    mask = features["input_mask"]
    if keras.backend.standardize_dtype(mask.dtype) != "bool":
        features["input_mask"] = in_range(
            "input_mask", mask, 2, "number of mask values", in_graph=in_graph
        )
    return features


def _with_our_names(features: Any) -> Any:
    """Returns the features with our names in place of transformers'.

    Raises:
        UserError: where both names have values, and not the same ones.
    """
    if not isinstance(features, Mapping) or ALIASES.keys().isdisjoint(features):
        return features
    renamed = {n: v for n, v in features.items() if n not in ALIASES}
    for alias, name in ALIASES.items():
        if alias in features:
            value = renamed.setdefault(name, features[alias])
            require(
                _is_same(value, features[alias]),
                f"{alias} and {name} are two names of one input, and their "
                "values differ, or are not known yet; give one of them.",
            )
    return renamed


def _is_same(one: Any, two: Any) -> bool:
    """Returns whether two inputs are known to have the same values."""
    if one is two or _is_symbolic(one) or _is_symbolic(two):
        return one is two
    return np.array_equal(*map(ops.convert_to_numpy, (one, two)))


def _check_names(
    features: Mapping[str, Tensor], needed: Sequence[str], known: Iterable[str]
) -> None:
    """Raises UserError for missing features, and for renamed ones."""
    names = list(features) if isinstance(features, Mapping) else None
    missing = {"input_ids", *needed}.difference(names or ())
    require(
        not missing,
        f"The model reads a dictionary with {', '.join(sorted(missing))}; got "
        f"{names or type(features).__name__}.",
    )
    absent = [name for name in ENCODER_INPUTS if name not in features]
    unknown = set(names or ()).difference(ENCODER_INPUTS, needed, known)
    require(
        not (absent and unknown),
        f"The features have no {' and no '.join(absent)}, but "
        f"{', '.join(sorted(unknown))}, which the model does not read; rename "
        f"or remove it (it reads {', '.join((*ENCODER_INPUTS, *ALIASES))}).",
    )


def _with_defaults(
    features: Mapping[str, Tensor], needed: Sequence[str]
) -> dict[str, Tensor]:
    """Returns the features as tensors, a mask and segments among them."""
    features = dict(features)
    for name in features.keys() & {*ENCODER_INPUTS, *needed}:
        if not hasattr(features[name], "shape"):
            features[name] = ops.convert_to_tensor(features[name])
        require(
            not (ON_TENSORFLOW and isinstance(features[name], tf.RaggedTensor)),
            f"{name} has rows of different lengths; give its .to_tensor(), and "
            "as input_mask tf.sequence_mask() of its .row_lengths().",
        )
    ids = features["input_ids"]
    if "input_mask" not in features:
        features["input_mask"] = ops.ones_like(ids)
    if "segment_ids" not in features:
        features["segment_ids"] = ops.zeros_like(ids)
    return features


def _check_shapes(features: Mapping[str, Tensor]) -> None:
    """Raises UserError unless the encoder's inputs have one allowed shape."""
    expected = features["input_ids"].shape
    require(
        len(expected) in (2, 3),
        "input_ids must have the shape [batch, seq] or [batch, choices, seq]; "
        f"they have {list(expected)}.",
    )
    for name in ENCODER_INPUTS[1:]:
        shape = features[name].shape
        require(
            len(shape) == len(expected)
            and all(
                infers_shapes() or one == two or None in (one, two)
                for one, two in zip(shape, expected, strict=True)
            ),
            f"{name} must have the shape of input_ids, {list(expected)}; they "
            f"have {list(shape)}.",
        )


def _checked_length(ids: Tensor, config: ModelConfig) -> Tensor:
    """Returns the ids, after a check that no sequence is too long."""
    length, limit = ops.shape(ids)[-1], config.max_position_embeddings
    if ids.shape[-1] is not None:
        require(
            infers_shapes() or length <= limit,
            f"A sequence of {length} tokens exceeds "
            f"max_position_embeddings={limit}; shorten the data or give the "
            "model more positions.",
        )
        return ids
    if keras.backend.is_keras_tensor(ids):
        return ids
    return _asserted(
        ids,
        length > limit,
        f"A sequence of more than max_position_embeddings={limit} tokens:",
        length,
    )


def in_range(
    name: str,
    values: Any,
    limit: Any,
    limit_name: str,
    *,
    counted: object = None,
    in_graph: bool = True,
) -> Tensor:
    """Returns the values, after a check that they are from 0 to `limit` - 1.

    `counted` has the values' shape, and False where one is not checked;
    `in_graph` is whether a graph asserts it too.

    Raises:
        UserError: naming a known value that is out of range.
        tf.errors.InvalidArgumentError: when a graph runs.
    """
    stand_ins = infers_shapes()
    if stand_ins or any(map(_is_symbolic, (values, limit, counted))):
        if stand_ins or not in_graph or not ON_TENSORFLOW:
            return values
        numbers = ops.cast(values, "int64")
        if keras.backend.is_float_dtype(values.dtype):
            is_whole = ops.cast(numbers, values.dtype) == values
            numbers = ops.where(is_whole, numbers, -1)
        if counted is not None:
            numbers = ops.where(counted, numbers, 0)
        low, high = ops.min(numbers), ops.max(numbers)
        return _asserted(
            values,
            ops.logical_or(low < 0, high >= ops.cast(limit, "int64")),
            f"{name} must be from 0 to below {limit_name}; the limit, the "
            "lowest and the highest are",
            limit,
            low,
            high,
        )
    known = _numbers(name, values)
    wrong = (known < 0) | (known >= int(limit)) | (known != np.floor(known))
    if counted is not None:
        wrong &= np.asarray(ops.convert_to_numpy(counted))
    _refuse(
        f"{name} must be whole numbers from 0 to {int(limit) - 1} "
        f"({limit_name}={int(limit)})",
        known,
        wrong,
    )
    return values


def finite(name: str, values: Any, *, lowest: float = -math.inf) -> Tensor:
    """Returns the values, after a check that they are finite, from `lowest` on.

    Raises:
        UserError: naming a known value that is not.
        tf.errors.InvalidArgumentError: when a graph runs.
    """
    rule = f"{name} must be finite" + " and not negative" * (lowest == 0)
    if _is_symbolic(values):
        if infers_shapes() or not ON_TENSORFLOW:
            return values
        numbers = ops.cast(values, "float32")
        allowed = ops.logical_and(numbers >= lowest, ops.isfinite(numbers))
        return _asserted(
            values,
            ops.logical_not(ops.all(allowed)),
            f"{rule}; the lowest and the highest are",
            ops.min(numbers),
            ops.max(numbers),
        )
    known = _numbers(name, values)
    _refuse(rule, known, ~((known >= lowest) & np.isfinite(known)))
    return values


def _refuse(message: str, values: np.ndarray, wrong: np.ndarray) -> None:
    """Raises UserError with the first value that is wrong, if any is."""
    if wrong.any():
        at = [int(axis[0]) for axis in wrong.nonzero()]
        raise UserError(f"{message}; at {at} is {values[tuple(at)]}.")


def _numbers(name: str, values: Any) -> np.ndarray:
    known = np.asarray(ops.convert_to_numpy(values))
    require(
        known.dtype.kind not in "OSUMm",
        f"{name} must be numbers; they are {known.dtype}, such as "
        f"{known.ravel()[:1].tolist()}.",
    )
    return known


def _is_symbolic(value: object) -> bool:
    """Returns whether a value is a symbolic tensor, unknown until it runs."""
    if keras.backend.is_keras_tensor(value):
        return True
    if ON_TENSORFLOW:
        return tf.is_symbolic_tensor(value)
    if keras.backend.backend() == "jax":
        import jax

        # An array of several hosts is not known to any of them.
        return isinstance(value, jax.core.Tracer) or not getattr(
            value, "is_fully_addressable", True
        )
    import torch

    return torch.compiler.is_compiling()


def _asserted(
    value: Tensor, wrong: Tensor, message: str, *numbers: object
) -> Tensor:
    """Returns the value after an assertion, in a graph of TensorFlow."""
    if not ON_TENSORFLOW or any(
        map(keras.backend.is_keras_tensor, (value, wrong, *numbers))
    ):
        return value
    # tf.debugging puts a conditional around its assertions.
    check = tf.raw_ops.Assert(
        condition=tf.logical_not(wrong), data=[message, *numbers]
    )
    # Readers of the value wait: a gather would fail first, less clearly.
    with tf.control_dependencies([check]):
        return tf.identity(value)
