"""Held-out examples whose texts are in training too."""

import os
from collections.abc import Sequence
from typing import Any

from albert_tf.config import listed
from albert_tf.tasks.kinds.base import Kind

_MAX_NAMED = 5


def duplicates(
    kind: Kind, train: Sequence[Any], held_out: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """Returns held-out examples whose texts are in training, each with one.

    Texts are equal that differ in case or white space alone. Their order does
    not matter, nor does it where dev examples are held out (splits.py).
    """
    known = {_normalised(kind, example): example for example in train}
    pairs = ((each, known.get(_normalised(kind, each))) for each in held_out)
    return [(each, twin) for each, twin in pairs if twin is not None]


def _normalised(kind: Kind, example: Any) -> tuple[str, ...]:
    texts = kind.texts(example)
    return tuple(sorted(" ".join(text.casefold().split()) for text in texts))


def duplicates_line(
    kind: Kind, train: Sequence[Any], held_out: Sequence[Any], split: str
) -> str:
    """Returns a warning on these examples of a split; "" without any."""
    found = duplicates(kind, train, held_out)
    if not found:
        return ""
    twins = [f"{_place(each)} = {_place(twin)}" for each, twin in found]
    named = listed(twins, _MAX_NAMED, longest=None)
    return (
        f"WARNING: {len(found)} of {len(held_out)} {split} examples "
        f"({len(found) / len(held_out):.1%}) have all the texts of a training "
        "example, up to order, case and white space; the results on them say "
        f"nothing about new texts. {named}."
    )


def _place(example: Any) -> str:
    return os.path.basename(example.location)
