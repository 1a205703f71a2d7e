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
_RECORD: Namer = "Record {}".format


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of a record: `name` inside, `stored_name` in the file."""

    name: str
    length: str | int
    dtype: str = "int64"  # or "float32": tf.train.Example has both
    stored_name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stored_name", self.stored_name or self.name)


@dataclasses.dataclass(frozen=True)
class RecordSpec:
    """The schema of one kind of record."""

    kind: str
    features: tuple[Feature, ...]


# One row per kind. `static` is, to the name, what google-research/albert
# writes and reads; its next_sentence_labels hold the sentence-order label.
RECORD_SPECS: dict[str, RecordSpec] = {
    spec.kind: spec
    for spec in (
        RecordSpec(
            "dynamic",
            (
                Feature("input_ids", TOKENS),
                Feature("segment_ids", TOKENS),
                Feature("word_starts", TOKENS),
                Feature("sentence_order_label", 1),
            ),
        ),
        RecordSpec(
            "static",
            (
                Feature("input_ids", SEQUENCE),
                Feature("input_mask", SEQUENCE),
                Feature("segment_ids", SEQUENCE),
                Feature("token_boundary", SEQUENCE),
                Feature("masked_lm_positions", SLOTS),
                Feature("masked_lm_ids", SLOTS),
                Feature("masked_lm_weights", SLOTS, "float32"),
                Feature(
                    "sentence_order_label",
                    1,
                    stored_name="next_sentence_labels",
                ),
            ),
        ),
    )
}


def record_spec(kind: Any, source: str) -> RecordSpec:
    """Returns the row of RECORD_SPECS that a metadata.json names.

    Raises:
        UserError: naming `source`, for records of another kind, such as those
            of a task.
    """
    if kind not in RECORD_SPECS:
        raise UserError(
            f"{source}: record_kind={kind!r} is not one of "
            f"{', '.join(RECORD_SPECS)}, the kinds of pretraining records."
        )
    return RECORD_SPECS[kind]


def serialize_batch(
    spec: RecordSpec, columns: Mapping[str, np.ndarray | Column]
) -> list[bytes]:
    """Returns each example as the bytes of a tf.train.Example.

    Equal examples give equal bytes, those of protobuf's deterministic
    serialisation. TensorFlow is not needed.

    Args:
        spec: the schema.
        columns: for every feature's name an array `[batch, length]`, or
            `[batch]` for a single number, or a pair: flat values, and how
            many of them each example has, `[batch]`.

    Raises:
        ValueError: unless `columns` holds the features of `spec`, in their
            types and lengths, and no negative integer.
    """
    names = {feature.name for feature in spec.features}
    if set(columns) != names:
        raise ValueError(
            f"A {spec.kind} record has {sorted(names)}; given are "
            f"{sorted(columns)}."
        )
    stored: dict[str, Column] = {}
    needed: dict[str | int, np.ndarray] = {}
    for feature in spec.features:
        values, sizes = _as_column(feature, columns[feature.name])
        if feature.length not in needed:
            needed[feature.length] = _needed_sizes(feature, sizes)
        _check_column(feature, values, sizes, needed[feature.length])
        stored[feature.stored_name] = values, sizes
    return encode_examples(stored)


def serialize(spec: RecordSpec, example: Mapping[str, Any]) -> bytes:
    """Returns one example's bytes; see `serialize_batch`.

    `example` maps every feature's name to a sequence of numbers.
    """
    columns = {name: np.asarray(example[name])[None] for name in example}
    (serialized,) = serialize_batch(spec, columns)
    return serialized


def _as_column(feature: Feature, column: np.ndarray | Column) -> Column:
    if isinstance(column, tuple):
        values, sizes = np.asarray(column[0]), np.asarray(column[1])
    else:
        values = column.reshape(-1)
        sizes = np.full(len(column), column[0].size if len(column) else 0)
    if feature.dtype == "float32":
        return values.astype(np.float32, copy=False), sizes
    if values.dtype.kind not in "biu":
        raise ValueError(f"{feature.name!r} has {values.dtype}, not integers.")
    return values, sizes


def _needed_sizes(feature: Feature, sizes: np.ndarray) -> np.ndarray:
    """Returns the size of features of this length, by the first of them."""
    if feature.length == TOKENS:
        return sizes
    padded = feature.length in (SEQUENCE, SLOTS)
    length = sizes[:1].sum() if padded else feature.length
    return np.full_like(sizes, length)


def _check_column(
    feature: Feature,
    values: np.ndarray,
    sizes: np.ndarray,
    needed: np.ndarray,
) -> None:
    """Raises ValueError unless the sizes are those needed, and fit."""
    if len(sizes) != len(needed):
        raise ValueError(
            f"{feature.name!r} has {len(sizes)} examples; another feature has "
            f"{len(needed)}."
        )
    for number in np.flatnonzero((sizes != needed) | (sizes < 1)):
        raise ValueError(
            f"Example {number}: {feature.name!r} has {sizes[number]} values; "
            f"expected {max(1, needed[number])}."
        )
    if sizes.sum() != len(values):
        raise ValueError(
            f"{feature.name!r} has {len(values)} values; its sizes add up to "
            f"{sizes.sum()}."
        )


def parse_batch(
    spec: RecordSpec,
    serialized: Sequence[bytes],
    *,
    max_seq_length: int,
    num_slots: int = 0,
    namer: Namer = _RECORD,
) -> dict[str, np.ndarray]:
    """Returns the features of `serialized` by name, one row per record.

    Tokens come padded with 0 to `[batch, max_seq_length]`, with `input_mask`
    beside them if the record has none; masked positions as `[batch,
    num_slots]`; a single number as `[batch]`. int64 is narrowed to int32.

    Args:
        spec: their schema.
        serialized: the records.
        max_seq_length: tokens of a row.
        num_slots: masked positions of a static record.
        namer: names a record in messages, by its number in `serialized`.

    Raises:
        UserError: if a record is no tf.train.Example, lacks a feature, or has
            one of another type or length or beyond int32; it names the
            record and the feature.
    """
    lengths = {SEQUENCE: max_seq_length, SLOTS: num_slots}
    columns = parse_columns(spec, serialized, namer)
    num_tokens = columns["input_ids"][1]
    batch: dict[str, np.ndarray] = {}
    for feature in spec.features:
        values, sizes = columns[feature.stored_name]
        if feature.length == TOKENS:
            _check_sizes(feature, sizes, num_tokens, namer)
            _check_fit(num_tokens, max_seq_length, namer)
            values = _narrow(feature, values, sizes, namer)
            batch[feature.name] = _padded(values, sizes, max_seq_length)
        else:
            length = feature.length
            if isinstance(length, str):
                length = lengths[length]
            _check_sizes(feature, sizes, np.full_like(sizes, length), namer)
            values = _narrow(feature, values, sizes, namer)
            shape = (-1,) if feature.length == 1 else (len(sizes), length)
            batch[feature.name] = values.reshape(shape)
    if "input_mask" not in batch:
        mask = np.arange(max_seq_length) < num_tokens[:, None]
        batch["input_mask"] = mask.astype(np.int32)
    return batch


def parse_columns(
    spec: RecordSpec, serialized: Sequence[bytes], namer: Namer = _RECORD
) -> dict[str, Column]:
    """Returns flat values and sizes per record of every stored feature.

    A feature that a record lacks has size 0 there.

    Raises:
        UserError: if a record is no tf.train.Example, or has a feature of
            another type; it names the record.
    """
    import tensorflow as tf

    ragged = {
        feature.stored_name: tf.io.RaggedFeature(
            tf.dtypes.as_dtype(feature.dtype)
        )
        for feature in spec.features
    }

    def parse(records: Sequence[bytes]) -> dict[str, Any]:
        return tf.io.parse_example(tf.constant(records, tf.string), ragged)

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
                    f"{namer(number)} is not a {spec.kind} record: not a "
                    "tf.train.Example, or a feature of another type."
                ) from None
        raise
    return {
        name: (column.values.numpy(), column.row_lengths().numpy())
        for name, column in parsed.items()
    }


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


def _check_fit(
    num_tokens: np.ndarray, max_seq_length: int, namer: Namer
) -> None:
    """Raises UserError for the first record with too many tokens."""
    for number in np.flatnonzero(num_tokens > max_seq_length).tolist():
        raise UserError(
            f"{namer(number)} has {num_tokens[number]} tokens; at most "
            f"max_seq_length={max_seq_length} are allowed."
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


def _padded(values: np.ndarray, sizes: np.ndarray, width: int) -> np.ndarray:
    """Returns flat `values` as rows of `width`, filled up with 0."""
    rows = np.zeros((len(sizes), width), values.dtype)
    rows[np.arange(width) < sizes[:, None]] = values
    return rows
