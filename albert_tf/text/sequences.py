"""Texts and pairs as rows of token ids: joined, truncated and padded."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.config import require, shown

# "longest": as wide as the longest row; "max": max_seq_length; "none": each
# row has its own length.
PADDINGS = ("longest", "max", "none")


class JoinedTexts(NamedTuple):
    """Rows of token ids with [CLS] and [SEP].

    Attributes:
        ids: the rows.
        second_starts: `[rows]`, where the second text begins; the row's length
            where there is none.
        truncated: numbers of the rows that did not fit.
    """

    ids: list[list[int]]
    second_starts: np.ndarray
    truncated: list[int]


def truncated_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """Returns the lengths of a pair, truncated to `room` tokens.

    As if one token were taken off the longer side again and again, off the
    second of two that are equal (the original's `_truncate_seq_pair`).
    """
    first = min(first, room - min(second, room // 2))
    return first, min(second, room - first)


def joined_texts(
    token_ids: Sequence[Sequence[Sequence[int]]],
    *,
    cls_id: int,
    sep_id: int,
    max_seq_length: int | None,
) -> JoinedTexts:
    """Returns [CLS] text [SEP], or [CLS] first [SEP] second [SEP].

    `token_ids` are of each row's texts. Rows are truncated at their ends,
    unless `max_seq_length` is None.
    """
    rows, truncated = [], []
    second_starts = np.zeros(len(token_ids), np.int64)
    for number, texts in enumerate(token_ids):
        first, second = texts[0], texts[1] if len(texts) > 1 else ()
        a, b = len(first), len(second)
        if max_seq_length is not None:
            a, b = truncated_lengths(a, b, max_seq_length - 1 - len(texts))
        if a < len(first) or b < len(second):
            truncated.append(number)
        row = [cls_id, *first[:a], sep_id]
        second_starts[number] = len(row)
        if len(texts) > 1:
            row += [*second[:b], sep_id]
        rows.append(row)
    return JoinedTexts(rows, second_starts, truncated)


def model_inputs(
    joined: JoinedTexts, *, pad_id: int, padding: str, width: int | None
) -> dict[str, Any]:
    """Returns `input_ids`, `input_mask` and `segment_ids` of a model.

    int32 `[batch, seq]`, as wide as the longest row or `width`; without
    padding a list of arrays `[seq]` each.
    """
    lengths = np.array([len(row) for row in joined.ids], np.int64)
    if padding != "max" or width is None:
        width = int(lengths.max(initial=2))
    columns = np.arange(width)
    is_token = columns < lengths[:, None]
    ids = np.full(is_token.shape, pad_id, np.int32)
    ids[is_token] = list(itertools.chain.from_iterable(joined.ids))
    is_second = is_token & (columns >= joined.second_starts[:, None])
    inputs = {
        "input_ids": ids,
        "input_mask": is_token.astype(np.int32),
        "segment_ids": is_second.astype(np.int32),
    }
    if padding != "none":
        return inputs
    return {
        name: [row[:n] for row, n in zip(values, lengths, strict=True)]
        for name, values in inputs.items()
    }


def check_options(max_seq_length: int | None, padding: str) -> None:
    """Raises UserError for an impossible length, or an unknown padding."""
    require(
        max_seq_length is None
        or (type(max_seq_length) is int and max_seq_length >= 3),
        f"max_seq_length={shown(max_seq_length)} must be a whole number from 3 "
        "(a pair has three special tokens), or None: no truncation.",
    )
    require(
        padding in PADDINGS,
        f"padding={shown(padding)} is not one of {', '.join(PADDINGS)}.",
    )
    require(
        padding != "max" or max_seq_length is not None,
        "padding='max' pads to max_seq_length, which is None.",
    )


def checked_texts(
    texts: Iterable[Any], pairs: Iterable[Any] | None
) -> list[tuple[str, ...]]:
    """Returns the texts of each row, one or two.

    Raises:
        UserError: for a single string or a table in place of a list, texts
            that are no strings, and another number of `pairs`.
    """
    for name, given in (("texts", texts), ("pairs", pairs)):
        require(
            not isinstance(given, str | bytes),
            f"{name}={shown(given)} is one string; give a list of them.",
        )
        require(
            # Both would be their columns' names.
            not isinstance(given, Mapping) and getattr(given, "ndim", 1) == 1,
            f"{name} are a {type(given).__name__}; give a column of it.",
        )
    rows = [
        (row,) if isinstance(row, str) else row
        for row in (texts if pairs is None else _zipped(texts, pairs))
    ]
    for number, row in enumerate(rows):
        require(
            isinstance(row, tuple | list)
            and len(row) in (1, 2)
            and all(isinstance(text, str) for text in row),
            f"texts[{number}]={shown(row)} must be a string, or a pair of "
            "them.",
        )
    return [tuple(row) for row in rows]


def _zipped(texts: Iterable[Any], pairs: Iterable[Any]) -> list[tuple]:
    texts, pairs = list(texts), list(pairs)
    require(
        len(texts) == len(pairs),
        f"There are {len(texts)} texts and {len(pairs)} pairs; each text needs "
        "one second text.",
    )
    return list(zip(texts, pairs, strict=True))
