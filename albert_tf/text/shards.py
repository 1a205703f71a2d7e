"""Directories of pretraining records: shards and their account.

Records lie in shards, TFRecord files named in the directory's
`metadata.json`, which is written last: a directory without it is unfinished.
`write_shard` writes one; `open_shards` checks them against the account and
gives random access by record number. Nothing here needs TensorFlow.
"""

import concurrent.futures
import dataclasses
import fnmatch
import glob
import hashlib
import os
import types
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import UserError, read_json
from albert_tf.text.tfrecord import record_spans, write_records

METADATA_NAME = "metadata.json"
# The tokenizer of the records, beside them.
TOKENIZER_DIRECTORY = "tokenizer"
FORMAT_VERSION = 1
# Few calls to the system, whatever the size of a record.
_BUFFER_BYTES = 1_000_000


@dataclasses.dataclass(frozen=True)
class ShardInfo:
    """What metadata.json says of a shard."""

    name: str
    num_records: int
    num_bytes: int
    sha256: str


def shard_name(split: str, shard: int, num_shards: int) -> str:
    """Returns the file name of a split's shard, `train-00000-of-00008...`."""
    return f"{split}-{shard:05}-of-{num_shards:05}.tfrecord"


def write_shard(
    path: str | os.PathLike[str], records: Iterable[bytes]
) -> ShardInfo:
    """Returns the account of a TFRecord file written with `records`.

    The file has its name only when it is complete and on disk; if `records`
    fails, nothing is left.
    """
    path = os.fspath(path)
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(temporary, "wb", buffering=_BUFFER_BYTES) as file:
            account = write_records(file, records)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise
    return ShardInfo(os.path.basename(path), *account)


def id_ranges(ids: np.ndarray) -> list[list[int]]:
    """Returns sorted `ids` as half-open ranges `[first, past the last]`."""
    runs = np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1)
    return [[int(run[0]), int(run[-1]) + 1] for run in runs if len(run)]


def ids_in_ranges(ranges: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns the ids, int32, that `id_ranges` made `ranges` of."""
    parts = [np.arange(first, last, dtype=np.int32) for first, last in ranges]
    return np.concatenate(parts or [np.zeros(0, np.int32)])


def describe_tokenizer(tokenizer: Any) -> dict[str, Any]:
    """Returns what a reader must know of the tokenizer to mask and to check."""
    return {
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": int(tokenizer.vocab_size),
        "pad_id": int(tokenizer.pad_id),
        "unk_id": int(tokenizer.unk_id),
        "cls_id": int(tokenizer.cls_id),
        "sep_id": int(tokenizer.sep_id),
        "mask_id": int(tokenizer.mask_id),
        "special_ids": [int(i) for i in tokenizer.special_ids],
        "replacement_id_ranges": id_ranges(tokenizer.replacement_ids),
    }


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
        spans = record_spans(file.fileno())
    if len(spans[0]) != shard.num_records:
        raise UserError(
            f"{path} has {len(spans[0])} records, {METADATA_NAME} says "
            f"{shard.num_records}."
        )
    return spans


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
