"""A prediction for each of many items, or the error that prevents it."""

import functools
import itertools
from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any

from albert_tf.config import UserError, require, shown
from albert_tf.tasks.kinds.base import Kind

# Predicts for a batch of examples; an error may stand in place of one.
PredictBatch = Callable[[list[Any]], Iterable[Any]]


def checked_items(items: Iterable[Any], expected: str) -> Iterable[Any]:
    """Returns the items; raises UserError for what is no list of them."""
    require(
        # A string would be its characters, a data frame its columns' names.
        isinstance(items, Iterable)
        and not isinstance(items, str | bytes | Mapping)
        and getattr(items, "ndim", 1) == 1,
        f"The texts are {shown(items)}; expected a list, each item of it "
        f"{expected}.",
    )
    return items


def texts_of(
    item: Any, number: int, counts: Container[int], expected: str
) -> tuple[str, ...]:
    """Returns an item, a string or several, as a tuple of them.

    Raises UserError for anything else, and an item that is one itself.
    """
    texts = (item,) if isinstance(item, str) else item
    if isinstance(item, UserError):
        raise item
    if (
        isinstance(texts, tuple | list)
        and len(texts) in counts
        and all(isinstance(text, str) for text in texts)
    ):
        return tuple(texts)
    raise UserError(f"Text {number} is {shown(item)}; expected {expected}.")


def example_of(kind: Kind, item: Any, number: int) -> Any:
    """Returns an example of a kind, made of strings where it is not yet."""
    if isinstance(item, kind.example_type):
        return item
    texts = texts_of(item, number, kind.text_counts, kind.text_format)
    return kind.example(texts, number)


def batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yields the items in lists of a size, the last one shorter."""
    remaining = iter(items)
    while batch := list(itertools.islice(remaining, size)):
        yield batch


def predict_each(
    items: Iterable[Any],
    make: Callable[[Any, int], Any],
    predict: PredictBatch,
    batch_size: int,
    return_exceptions: bool,
) -> Iterator[Any]:
    """Yields the prediction for each item, batch by batch.

    `make` returns the example of an item and its number from 1. It and
    `predict` may raise UserError, which is raised for the first item without
    a prediction or, with `return_exceptions`, yielded in its place.
    """
    for batch in batches(enumerate(items, start=1), batch_size):
        examples = [_error_or(make, *row[::-1]) for row in batch]
        good = [e for e in examples if not isinstance(e, UserError)]
        predictions = iter(_predict_separately(predict, good))
        for example in examples:
            is_wrong = isinstance(example, UserError)
            found = example if is_wrong else next(predictions)
            if isinstance(found, UserError) and not return_exceptions:
                raise found
            yield found


def _error_or(make: Callable[[Any, int], Any], item: Any, number: int) -> Any:
    try:
        return make(item, number)
    except UserError as error:
        return error


def _predict_separately(predict: PredictBatch, batch: list[Any]) -> list[Any]:
    """Returns the prediction for each example, the UserError where none is.

    An example that is refused, or cannot be batched with others, must not
    cost the predictions for these.
    """
    if not batch:
        return []
    try:
        return list(predict(batch))
    except UserError as error:
        if len(batch) == 1:
            return [error]
    half = len(batch) // 2
    predict_part = functools.partial(_predict_separately, predict)
    return [*predict_part(batch[:half]), *predict_part(batch[half:])]
