"""Data that users give to Keras' `fit`, in the forms that its adapters keep."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import ops

from albert_tf.config import UserError, require


def as_arrays(values: Any) -> Any:
    """Returns an array of an array-like, in a mapping by its names.

    A list of one array is that array: Keras takes a list of each output's.

    Raises:
        UserError: for rows of different lengths.
    """
    if isinstance(values, Mapping):
        return {n: as_arrays(v) for n, v in values.items() if v is not None}
    values = alone(values)
    is_list = isinstance(values, list | tuple)
    if ops.is_tensor(values) or not (is_list or hasattr(values, "__array__")):
        return values
    if is_list and any(len(getattr(v, "shape", ())) for v in values):
        return values
    try:
        return np.asarray(values)
    except ValueError as error:
        raise UserError(
            "The rows of a list have different lengths; pad them to one."
        ) from error


def alone(values: Any) -> Any:
    """Returns the array of a list of one array."""
    if (
        isinstance(values, list | tuple)
        and len(values) == 1
        and len(getattr(values[0], "shape", ()))
    ):
        return values[0]
    return values


def weights_of_classes(given: Any, classes: int) -> dict[int, float]:
    """Returns the weight of every class, 1 where none is given.

    Raises:
        UserError: for what is no mapping of classes to finite weights.
    """
    require(
        isinstance(given, Mapping),
        "class_weight must be a dictionary from numbers of classes to weights; "
        f"it is {given!r}.",
    )
    for number, weight in given.items():
        require(
            isinstance(number, int | np.integer)
            and 0 <= int(number) < classes
            and isinstance(weight, int | float | np.number)
            and 0 <= float(weight) < math.inf,
            f"class_weight has {number!r}: {weight!r}; it takes numbers of "
            f"classes from 0 to below {classes}, and finite weights from 0 on.",
        )
    weights = {number: float(given.get(number, 1)) for number in range(classes)}
    require(any(weights.values()), "class_weight has no weight above 0.")
    return weights
