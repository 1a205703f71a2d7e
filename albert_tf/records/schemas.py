"""The schemas of pretraining records: serialised and parsed by one table.

`serialize_batch` writes by `RECORD_SPECS` and `parse_batch` reads by it;
`shards` keeps records in files.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import UserError, require
from albert_tf.records.example_wire import Column, encode_examples

# Lengths of a feature that are not a number.
TOKENS = "tokens"  # the record's own number of tokens
SEQUENCE = "sequence"  # max_seq_length, padded
SLOTS = "slots"  # the room for masked positions, padded

# Returns a record's name in messages, by its number within its batch.
Namer = Callable[[int], str]


def namer_of(path: str, first: int = 0) -> Namer:
    """Returns the namer of a batch that begins at a file's record `first`."""
    return lambda number: f"{path}, record {first + number}"


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of a record: `name` inside, `stored_name` in the file."""

    name: str
    length: str | int
    dtype: str = "int64"  # or "float32": tf.train.Example has both
    stored_name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stored_name", self.stored_name or self.name)


# The features of each kind of record. `static` is, to the name, what
# google-research/albert writes and reads; its next_sentence_labels hold the
# sentence-order label.
RECORD_SPECS: dict[str, tuple[Feature, ...]] = {
    "dynamic": (
        Feature("input_ids", TOKENS),
        Feature("segment_ids", TOKENS),
        Feature("word_starts", TOKENS),
        Feature("sentence_order_label", 1),
    ),
    "static": (
        Feature("input_ids", SEQUENCE),
        Feature("input_mask", SEQUENCE),
        Feature("segment_ids", SEQUENCE),
        Feature("token_boundary", SEQUENCE),
        Feature("masked_lm_positions", SLOTS),
        Feature("masked_lm_ids", SLOTS),
        Feature("masked_lm_weights", SLOTS, "float32"),
        Feature("sentence_order_label", 1, stored_name="next_sentence_labels"),
    ),
}


def serialize_batch(
    kind: str, columns: Mapping[str, np.ndarray | Column]
) -> list[bytes]:
    """Returns each example as the bytes of a tf.train.Example.

    `columns` has for every feature's name an array `[batch, length]`, or
    `[batch]` for a single number, or a pair: flat values, and how many of them
    each example has, `[batch]`. See `encode_examples`.
    """
    return encode_examples(
        {
            feature.stored_name: columns[feature.name]
            for feature in RECORD_SPECS[kind]
        }
    )


def parse_batch(
    kind: str,
    serialized: Sequence[bytes],
    *,
    max_seq_length: int,
    num_slots: int = 0,
    namer: Namer = "Record {}".format,
) -> dict[str, np.ndarray]:
    """Returns the features of `serialized` by name, one row per record.

    Tokens come padded with 0 to `[batch, max_seq_length]`, with `input_mask`
    beside them if the record has none; masked positions as `[batch,
    num_slots]`; a single number as `[batch]`. int64 is narrowed to int32.

    Raises:
        UserError: if a record is no tf.train.Example, lacks a feature, or has
            one of another type or length or beyond int32; it names the
            record and the feature.
    """
    lengths = {SEQUENCE: max_seq_length, SLOTS: num_slots, 1: 1}
    columns = parse_columns(kind, serialized, namer)
    num_tokens = columns["input_ids"][1]
    batch: dict[str, np.ndarray] = {}
    in_use = np.arange(max_seq_length) < num_tokens[:, None]
    for feature in RECORD_SPECS[kind]:
        values, sizes = columns[feature.stored_name]
        rows: np.ndarray
        if feature.length == TOKENS:
            _check_sizes(feature, sizes, num_tokens, namer)
            for number in np.flatnonzero(num_tokens > max_seq_length).tolist():
                raise UserError(
                    f"{namer(number)} has {num_tokens[number]} tokens; at most "
                    f"max_seq_length={max_seq_length} are allowed."
                )
            values = _narrow(feature, values, sizes, namer)
            rows = np.zeros(in_use.shape, values.dtype)
            rows[in_use] = values
        else:
            length = lengths[feature.length]
            _check_sizes(feature, sizes, np.full_like(sizes, length), namer)
            rows = _narrow(feature, values, sizes, namer)
            if feature.length != 1:
                rows = rows.reshape(-1, length)
        batch[feature.name] = rows
    batch.setdefault("input_mask", in_use.astype(np.int32))
    return batch


def parse_columns(
    kind: str, serialized: Sequence[bytes], namer: Namer
) -> dict[str, Column]:
    """Returns flat values and sizes per record of every stored feature.

    A feature that a record lacks has size 0 there. Raises UserError for a
    record that cannot be parsed or has a feature of another type.
    """
    import tensorflow as tf

    names = [feature.stored_name for feature in RECORD_SPECS[kind]]
    dtypes = [tf.as_dtype(feature.dtype) for feature in RECORD_SPECS[kind]]

    def parse(records: Sequence[bytes]) -> Any:
        # tf.io.parse_example calls this too, after 1.5 ms of Python.
        return tf.raw_ops.ParseExampleV2(
            serialized=tf.constant(records, tf.string),
            names=[],
            sparse_keys=[],
            dense_keys=[],
            ragged_keys=names,
            dense_defaults=[],
            num_sparse=0,
            sparse_types=[],
            ragged_value_types=dtypes,
            ragged_split_types=[tf.int32] * len(names),
            dense_shapes=[],
        )

    # TensorFlow quotes the record in its message, whatever its bytes.
    errors = (tf.errors.InvalidArgumentError, UnicodeDecodeError)
    try:
        parsed = parse(serialized)
    except errors:
        for number, record in enumerate(serialized):
            try:
                parse([record])
            except errors:
                raise UserError(
                    f"{namer(number)} is not a {kind} record: not a "
                    "tf.train.Example, or a feature of another type."
                ) from None
        raise
    values = [column.numpy() for column in parsed.ragged_values]
    sizes = [np.diff(splits.numpy()) for splits in parsed.ragged_row_splits]
    return dict(zip(names, zip(values, sizes, strict=True), strict=True))


def _check_sizes(
    feature: Feature, sizes: np.ndarray, needed: np.ndarray, namer: Namer
) -> None:
    """Raises UserError for the first record whose feature has a wrong size."""
    for number in np.flatnonzero((sizes != needed) | (sizes == 0)).tolist():
        name = feature.stored_name
        require(sizes[number] > 0, f"{namer(number)} has no feature {name!r}.")
        raise UserError(
            f"{namer(number)}: feature {name!r} has {sizes[number]} values; "
            f"expected {needed[number]}."
        )


def _narrow(
    feature: Feature, values: np.ndarray, sizes: np.ndarray, namer: Namer
) -> np.ndarray:
    """Returns int64 as int32, or raises UserError for what does not fit."""
    if values.dtype != np.int64:
        return values
    narrow = values.astype(np.int32)
    for index in np.flatnonzero(narrow != values)[:1]:
        number = int(np.searchsorted(np.cumsum(sizes), index, "right"))
        raise UserError(
            f"{namer(number)}: feature {feature.stored_name!r} has the value "
            f"{values[index]}, which is beyond int32."
        )
    return narrow
