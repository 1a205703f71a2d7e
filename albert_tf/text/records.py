"""Pretraining records: their schemas, their shards, their directory.

`RECORD_SPECS` says what a record of each kind holds; `serialize` writes by it
and `parse_batch` reads by it. Records lie in shards, TFRecord files named in
the directory's `metadata.json`, which is written last: a directory without it
is unfinished. `open_shards` checks the shards against it and gives random
access by record number. TensorFlow is imported only where a record is
serialised, parsed or written.
"""

import concurrent.futures
import dataclasses
import fnmatch
import glob
import hashlib
import mmap
import os
import struct
import types
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import UserError, read_json

METADATA_NAME = "metadata.json"
# The tokenizer of the records, beside them.
TOKENIZER_DIRECTORY = "tokenizer"
FORMAT_VERSION = 1

# Lengths of a feature that are not a number.
TOKENS = "tokens"  # the record's own number of tokens
SEQUENCE = "sequence"  # max_seq_length, padded
SLOTS = "slots"  # the room for masked positions, padded


@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of a record: `name` inside, `stored_name` in the file."""

    name: str
    dtype: str  # "int64" or "float32", the two that tf.train.Example has here
    length: str | int
    stored_name: str


def _feature(
    name: str,
    length: str | int,
    dtype: str = "int64",
    stored_name: str | None = None,
) -> Feature:
    return Feature(name, dtype, length, stored_name or name)


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
                _feature("input_ids", TOKENS),
                _feature("segment_ids", TOKENS),
                _feature("word_starts", TOKENS),
                _feature("sentence_order_label", 1),
            ),
        ),
        RecordSpec(
            "static",
            (
                _feature("input_ids", SEQUENCE),
                _feature("input_mask", SEQUENCE),
                _feature("segment_ids", SEQUENCE),
                _feature("token_boundary", SEQUENCE),
                _feature("masked_lm_positions", SLOTS),
                _feature("masked_lm_ids", SLOTS),
                _feature("masked_lm_weights", SLOTS, "float32"),
                _feature(
                    "sentence_order_label",
                    1,
                    stored_name="next_sentence_labels",
                ),
            ),
        ),
    )
}


def serialize(spec: RecordSpec, example: Mapping[str, Any]) -> bytes:
    """Returns `example` as the bytes of a tf.train.Example.

    Equal examples give equal bytes. `example` maps every feature's name to a
    one-dimensional sequence of numbers.
    """
    import tensorflow as tf

    record = tf.train.Example()
    for feature in spec.features:
        values = np.asarray(example[feature.name], feature.dtype).tolist()
        stored = record.features.feature[feature.stored_name]
        if feature.dtype == "float32":
            stored.float_list.value.extend(values)
        else:
            stored.int64_list.value.extend(values)
    return record.SerializeToString(deterministic=True)


def parse_batch(
    spec: RecordSpec,
    serialized: Sequence[bytes],
    *,
    max_seq_length: int,
    num_slots: int = 0,
) -> dict[str, np.ndarray]:
    """Returns the features of `serialized` by name, one row per record.

    Tokens come padded with 0 to `[batch, max_seq_length]`, with `input_mask`
    beside them if the record has none; masked positions as `[batch,
    num_slots]`; a single number as `[batch]`. int64 is narrowed to int32.

    Raises:
        UserError: if a record is no tf.train.Example, lacks a feature, or has
            one of another type or length; it names the record's place in
            `serialized` and the feature.
    """
    lengths = {SEQUENCE: max_seq_length, SLOTS: num_slots}
    columns = _parse_columns(spec, serialized)
    num_tokens = columns["input_ids"][1]
    batch: dict[str, np.ndarray] = {}
    for feature in spec.features:
        values, sizes = columns[feature.stored_name]
        if feature.length == TOKENS:
            _check_sizes(feature, sizes, num_tokens)
            _check_fit(num_tokens, max_seq_length)
            batch[feature.name] = _padded(values, sizes, max_seq_length)
        else:
            length = lengths.get(feature.length, feature.length)
            _check_sizes(feature, sizes, np.full_like(sizes, length))
            shape = (-1,) if feature.length == 1 else (len(sizes), length)
            batch[feature.name] = values.reshape(shape)
    if "input_mask" not in batch:
        mask = np.arange(max_seq_length) < num_tokens[:, None]
        batch["input_mask"] = mask.astype(np.int32)
    return batch


def _parse_columns(
    spec: RecordSpec, serialized: Sequence[bytes]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns flat values and sizes per record of every stored feature."""
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
                    f"Record {number} is not a {spec.kind} record: not a "
                    "tf.train.Example, or a feature of another type."
                ) from None
        raise
    columns = {}
    for name, column in parsed.items():
        values = column.values.numpy()
        if values.dtype == np.int64:
            values = values.astype(np.int32)
        columns[name] = values, column.row_lengths().numpy()
    return columns


def _check_sizes(
    feature: Feature, sizes: np.ndarray, needed: np.ndarray
) -> None:
    """Raises UserError for the first record whose feature has a wrong size."""
    for number in np.flatnonzero((sizes != needed) | (sizes == 0)):
        if not sizes[number]:
            raise UserError(
                f"Record {number} has no feature {feature.stored_name!r}."
            )
        raise UserError(
            f"Record {number}: feature {feature.stored_name!r} has "
            f"{sizes[number]} values; {needed[number]} are needed."
        )


def _check_fit(num_tokens: np.ndarray, max_seq_length: int) -> None:
    """Raises UserError for the first record with too many tokens."""
    for number in np.flatnonzero(num_tokens > max_seq_length):
        raise UserError(
            f"Record {number} has {num_tokens[number]} tokens; at most "
            f"max_seq_length={max_seq_length} are allowed."
        )


def _padded(values: np.ndarray, sizes: np.ndarray, width: int) -> np.ndarray:
    """Returns flat `values` as rows of `width`, filled up with 0."""
    rows = np.zeros((len(sizes), width), values.dtype)
    rows[np.arange(width) < sizes[:, None]] = values
    return rows


@dataclasses.dataclass(frozen=True)
class ShardInfo:
    """What metadata.json says of a shard."""

    name: str
    num_records: int
    num_bytes: int
    sha256: str


def write_shard(
    path: str | os.PathLike[str], records: Iterable[bytes]
) -> ShardInfo:
    """Returns the account of a TFRecord file written with `records`.

    The file has its name only when it is complete and on disk.
    """
    import tensorflow as tf

    path = os.fspath(path)
    temporary = f"{path}.tmp-{os.getpid()}"
    num_records = 0
    with tf.io.TFRecordWriter(temporary) as writer:
        for record in records:
            writer.write(record)
            num_records += 1
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        num_bytes = file.tell()
    os.replace(temporary, path)
    return ShardInfo(os.path.basename(path), num_records, num_bytes, digest)


def id_ranges(ids: np.ndarray) -> list[list[int]]:
    """Returns sorted `ids` as half-open ranges `[first, past the last]`."""
    runs = np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1)
    return [[int(run[0]), int(run[-1]) + 1] for run in runs if len(run)]


def ids_in_ranges(ranges: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns the ids, int32, that `id_ranges` made `ranges` of."""
    parts = [np.arange(first, last, dtype=np.int32) for first, last in ranges]
    return np.concatenate(parts or [np.zeros(0, np.int32)])


class ShardSet:
    """The records of a split, read by number; safe to read from threads.

    `metadata` is the directory's metadata.json; `fingerprint` names the
    contents of its shards.
    """

    def __init__(
        self,
        directory: str,
        shards: Sequence[ShardInfo],
        metadata: dict[str, Any],
    ) -> None:
        self.directory = directory
        self.metadata = metadata
        # What the records are, whatever the directory is called.
        self.fingerprint = hashlib.sha256(
            "".join(shard.sha256 for shard in shards).encode()
        ).hexdigest()
        self._paths = [os.path.join(directory, shard.name) for shard in shards]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            spans = list(pool.map(_verified_spans, self._paths, shards))
        counts = [len(offsets) for offsets, _ in spans]
        self._first = np.cumsum([0, *counts])
        self._offsets = np.concatenate([offsets for offsets, _ in spans])
        self._lengths = np.concatenate([lengths for _, lengths in spans])
        self._descriptors = [os.open(path, os.O_RDONLY) for path in self._paths]
        self._close = weakref.finalize(self, _close_all, self._descriptors)

    def __len__(self) -> int:
        return len(self._offsets)

    def read(self, record_numbers: Iterable[int]) -> list[bytes]:
        """Returns the records with these numbers, in their order."""
        numbers = np.asarray(record_numbers, np.int64)
        if numbers.size and not (
            0 <= numbers.min() <= numbers.max() < len(self)
        ):
            raise IndexError(f"A record number is outside range({len(self)}).")
        shards = np.searchsorted(self._first, numbers, side="right") - 1
        return [
            os.pread(self._descriptors[shard], length, offset)
            for shard, length, offset in zip(
                shards.tolist(),
                self._lengths[numbers].tolist(),
                self._offsets[numbers].tolist(),
                strict=True,
            )
        ]

    def location(self, record_number: int) -> str:
        """Returns where a record lies, for messages: file and record."""
        shard = int(np.searchsorted(self._first, record_number, "right")) - 1
        within = record_number - int(self._first[shard])
        return f"{self._paths[shard]}, record {within}"

    def close(self) -> None:
        """Closes the files."""
        self._close()

    def __enter__(self) -> "ShardSet":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.close()


def shard_directory(path: str | os.PathLike[str]) -> str:
    """Returns the directory of the shards that a path or glob names."""
    path = os.fspath(path)
    if os.path.isdir(path) or glob.escape(path) == path:
        return path
    return os.path.dirname(path)


def open_shards(path: str | os.PathLike[str], split: str) -> ShardSet:
    """Returns the records of `split` in a shard directory.

    `path` is the directory or a glob of shard files in it, which selects
    some of the split's shards.

    Raises:
        UserError: if the directory is unfinished or has no such split, or a
            shard is missing, cut, changed or foreign; it names the file.
    """
    path = os.fspath(path)
    directory = shard_directory(path)
    pattern = None if directory == path else os.path.basename(path)
    metadata = read_metadata(directory)
    splits = metadata["splits"]
    if split not in splits:
        raise UserError(
            f"{directory} has no split {split!r}; it has "
            f"{', '.join(sorted(splits))}."
        )
    shards = [ShardInfo(**shard) for shard in splits[split]["shards"]]
    for shard in shards:
        if shard.name != os.path.basename(shard.name):
            raise UserError(
                f"{os.path.join(directory, METADATA_NAME)} names the shard "
                f"{shard.name!r}; a name within the directory is needed."
            )
    if pattern is not None:
        _refuse_foreign(directory, pattern, splits)
        shards = [s for s in shards if fnmatch.fnmatchcase(s.name, pattern)]
        if not shards:
            raise UserError(f"{path} names no shard of the split {split!r}.")
    return ShardSet(directory, shards, metadata)


def read_metadata(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns a shard directory's metadata.json.

    Raises:
        UserError: if the directory is missing or unfinished, or written by
            another version of the format.
    """
    directory = os.fspath(directory)
    if not os.path.isdir(directory or "."):
        raise UserError(f"{directory} is not a directory of shards.")
    path = os.path.join(directory, METADATA_NAME)
    if not os.path.exists(path):
        raise UserError(
            f"{directory or '.'} has no {METADATA_NAME}, so its shards are "
            "unfinished; run build_pretraining_data again with this output "
            "directory to finish it."
        )
    metadata = read_json(path)
    if metadata.get("format_version") != FORMAT_VERSION:
        raise UserError(
            f"{path} has format_version={metadata.get('format_version')!r}; "
            f"{FORMAT_VERSION} is needed. Build the shards again."
        )
    return metadata


def _refuse_foreign(
    directory: str, pattern: str, splits: Mapping[str, Any]
) -> None:
    """Raises UserError if the glob matches a file that is no known shard."""
    known = {
        shard["name"] for split in splits.values() for shard in split["shards"]
    }
    known.add(METADATA_NAME)
    for name in sorted(os.listdir(directory or ".")):
        if fnmatch.fnmatchcase(name, pattern) and name not in known:
            raise UserError(
                f"{os.path.join(directory, name)} is not a shard that "
                f"{METADATA_NAME} names; take a narrower pattern than "
                f"{pattern!r}."
            )


def _verified_spans(
    path: str, shard: ShardInfo
) -> tuple[np.ndarray, np.ndarray]:
    """Returns offsets and lengths of a shard's records, or raises UserError."""
    try:
        num_bytes = os.path.getsize(path)
    except OSError as error:
        raise UserError(
            f"{path} is missing ({error.strerror}); {METADATA_NAME} names it."
        ) from None
    if num_bytes != shard.num_bytes:
        raise UserError(
            f"{path} has {num_bytes} bytes, {METADATA_NAME} says "
            f"{shard.num_bytes}: it was cut or replaced. Copy it again or "
            "build the shards again."
        )
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != shard.sha256:
            raise UserError(
                f"{path} has sha256 {digest}, {METADATA_NAME} says "
                f"{shard.sha256}: its contents changed. Copy it again or "
                "build the shards again."
            )
        spans = _record_spans(file.fileno(), num_bytes)
    if len(spans[0]) != shard.num_records:
        raise UserError(
            f"{path} has {len(spans[0])} records, {METADATA_NAME} says "
            f"{shard.num_records}."
        )
    return spans


def _record_spans(
    descriptor: int, num_bytes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns offset and length of each record's data in a TFRecord file.

    A record is its length (8 bytes), a checksum (4), the data, a checksum
    (4). The file's sha256 has been checked: lengths can be trusted.
    """
    offsets, lengths = [], []
    position = 0
    if num_bytes:
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
            while position < num_bytes:
                (length,) = struct.unpack_from("<Q", data, position)
                offsets.append(position + 12)
                lengths.append(length)
                position += length + 16
    return np.array(offsets, np.int64), np.array(lengths, np.int64)


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
