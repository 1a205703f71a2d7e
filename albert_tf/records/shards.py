"""Directories of pretraining records: shards and their metadata.json.

Records lie in shards, TFRecord files named in the directory's
`metadata.json`, which is written last: a directory without it is unfinished.
`write_shard` writes one; `open_shards` checks them against it and gives
random access by record number. Shards in a bucket are copied to a disk
first, where a read takes a thousandth of the time; see `shard_cache`.
"""

import concurrent.futures
import contextlib
import dataclasses
import errno
import fnmatch
import functools
import glob
import hashlib
import itertools
import os
import re
import resource
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import UserError, listed, require
from albert_tf.io import files, object_stores
from albert_tf.io.json_files import read_json
from albert_tf.records.shard_cache import ShardCache, ShardCopy
from albert_tf.records.tfrecord import (
    FOOTER_BYTES,
    is_intact,
    record_spans,
    write_records,
)

METADATA_NAME = "metadata.json"
# The tokenizer of the records, beside them.
TOKENIZER_DIRECTORY = "tokenizer"
# The directory of intermediate files until metadata.json is written.
WORK_DIRECTORY = ".work"
FORMAT_VERSION = 1
_TFRECORD = re.compile(r"tf_?record")


@dataclasses.dataclass(frozen=True)
class ShardInfo:
    """A shard's entry in metadata.json."""

    name: str
    num_records: int
    num_bytes: int
    sha256: str


def shard_name(split: str, shard: int, num_shards: int) -> str:
    """Returns the file name of a split's shard, `train-00000-of-00008...`."""
    return f"{split}-{shard:05}-of-{num_shards:05}.tfrecord"


def write_shard(
    path: files.Path, records: Iterable[bytes], *, file_system: Any = files
) -> ShardInfo:
    """Writes a TFRecord file; returns its entry.

    `file_system` is a module with `files.replacing`.
    """
    with file_system.replacing(path) as file:
        written = write_records(file, records)
    return ShardInfo(os.path.basename(path), *written)


def split_entry(shards: Sequence[ShardInfo]) -> dict[str, Any]:
    """Returns a split's entry in metadata.json."""
    return {
        "num_records": sum(shard.num_records for shard in shards),
        "shards": [dataclasses.asdict(shard) for shard in shards],
    }


def id_ranges(ids: np.ndarray) -> list[list[int]]:
    """Returns sorted `ids` as half-open ranges `[first, past the last]`."""
    runs = np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1)
    return [[int(run[0]), int(run[-1]) + 1] for run in runs if len(run)]


def ids_in_ranges(ranges: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns the ids, int32, that `id_ranges` made `ranges` of."""
    parts = [np.arange(first, last, dtype=np.int32) for first, last in ranges]
    return np.concatenate(parts or [np.zeros(0, np.int32)])


def describe_tokenizer(tokenizer: Any) -> dict[str, Any]:
    """Returns the tokenizer's entry in metadata.json: to mask, and to check."""
    names = ("vocab_size", "pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
    return {
        "fingerprint": tokenizer.fingerprint,
        **{name: int(getattr(tokenizer, name)) for name in names},
        "special_ids": [int(i) for i in tokenizer.special_ids],
        "replacement_id_ranges": id_ranges(tokenizer.replacement_ids),
    }


class ShardSet(contextlib.AbstractContextManager):
    """The records of a split, read by number; safe to read from threads."""

    def __init__(
        self,
        directory: str,
        shards: Sequence[ShardInfo],
        metadata: dict[str, Any],
        cache: ShardCache,
    ) -> None:
        self.directory = directory
        self.metadata = metadata
        # It is that of the contents, since the directory may be renamed.
        self.fingerprint = hashlib.sha256(
            "".join(shard.sha256 for shard in shards).encode()
        ).hexdigest()
        self._paths = [os.path.join(directory, shard.name) for shard in shards]
        copies: Sequence[ShardCopy | None] = [None] * len(shards)
        if files.is_remote(directory):
            sizes = [(shard.name, shard.num_bytes) for shard in shards]
            copies = cache.copies(self.fingerprint, sizes)
            if not all(copy.stays for copy in copies):
                # Fails now, and not in training, if its package is missing.
                object_stores.ObjectStore(directory.partition("://")[0])
        # The limit is often 1024 files, fewer than a large set has shards.
        _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(ValueError):  # "infinite" on macOS
            resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            spans = list(pool.map(_spans, self._paths, copies, shards))
        counts = [len(offsets) for offsets, _ in spans]
        self._first = np.cumsum([0, *counts])
        self._offsets = np.concatenate([offsets for offsets, _ in spans])
        self._lengths = np.concatenate([lengths for _, lengths in spans])
        # None for a shard that has no copy, and is read from the bucket.
        self._descriptors = [
            _opened(path, copy, shard)
            for path, copy, shard in zip(
                self._paths, copies, shards, strict=True
            )
        ]
        self._close = weakref.finalize(self, _close_all, self._descriptors)

    def __len__(self) -> int:
        return len(self._offsets)

    def read(self, record_numbers: Iterable[int]) -> list[bytes]:
        """Returns the records with these numbers, in their order.

        Raises:
            OSError: if a shard cannot be read, or a bucket does not answer
                or with other bytes; it names the file.
        """
        numbers = np.asarray(record_numbers, np.int64)
        shards = np.searchsorted(self._first, numbers, side="right") - 1
        found = [b""] * len(numbers)
        without_copy = []
        for row, (shard, length, offset) in enumerate(
            zip(
                shards.tolist(),
                self._lengths[numbers].tolist(),
                self._offsets[numbers].tolist(),
                strict=True,
            )
        ):
            descriptor = self._descriptors[shard]
            if descriptor is None:
                without_copy.append((row, shard, offset, length))
                continue
            try:
                found[row] = os.pread(descriptor, length, offset)
            except OSError as error:
                error.filename = self._paths[shard]
                raise
        if without_copy:
            rows, *where = zip(*without_copy, strict=True)
            for row, record in zip(rows, self._fetch(*where), strict=True):
                found[row] = record
        return found

    def _fetch(
        self,
        shards: Sequence[int],
        offsets: Sequence[int],
        lengths: Sequence[int],
    ) -> Iterator[bytes]:
        """Yields records out of the bucket, their checksums compared."""
        paths = [self._paths[shard] for shard in shards]
        ends = [
            offset + length + FOOTER_BYTES
            for offset, length in zip(offsets, lengths, strict=True)
        ]
        fetched = object_stores.read_ranges(paths, offsets, ends)
        for path, offset, data in zip(paths, offsets, fetched, strict=True):
            record = data[:-FOOTER_BYTES]
            if not is_intact(record, data[-FOOTER_BYTES:]):
                reason = f"the record at byte {offset} has another checksum"
                raise OSError(errno.EIO, reason, path)
            yield record

    def location(self, record_number: int) -> str:
        """Returns a record's file and number in it, for messages."""
        shard = int(np.searchsorted(self._first, record_number, "right")) - 1
        within = record_number - int(self._first[shard])
        return f"{self._paths[shard]}, record {within}"

    def close(self) -> None:
        """Closes the files."""
        self._close()

    def __exit__(self, *error: object) -> None:
        self.close()


def shard_directory(path: files.Path) -> str:
    """Returns the directory of the shards that a path or glob names."""
    path = os.fspath(path)
    if files.isdir(path) or glob.escape(path) == path:
        return path
    return os.path.dirname(path)


def open_shards(
    path: files.Path, split: str, *, cache: ShardCache | None = None
) -> ShardSet:
    """Returns the records of `split` in a shard directory.

    `path` is the directory or a glob of shard files in it, which selects some
    of the split's shards. Shards behind a scheme (`gs://`) are copied, for
    the next time as well, to the user's own directory for temporary files, as
    far as the `cache` allows; by default it has no limit. The records of
    further shards are read from the bucket.

    Raises:
        UserError: if the directory is unfinished or has no such split, or a
            shard is missing, cut, changed or foreign; it names the file.
    """
    path = os.fspath(path)
    directory = shard_directory(path)
    metadata = read_metadata(directory)
    splits = named_shards(directory, metadata)
    require(
        split in splits,
        f"{directory} has no split {split!r}; it has {', '.join(splits)}.",
    )
    shards = splits[split]
    if directory != path:
        pattern = os.path.basename(path)
        known = {shard.name for shard in itertools.chain(*splits.values())}
        for name in fnmatch.filter(files.listdir(directory or "."), pattern):
            require(
                name in known | {METADATA_NAME},
                f"{os.path.join(directory, name)} is not a shard that "
                f"{METADATA_NAME} names; take a narrower pattern than "
                f"{pattern!r}.",
            )
        shards = [s for s in shards if fnmatch.fnmatchcase(s.name, pattern)]
        require(bool(shards), f"{path} names no shard of the split {split!r}.")
    return ShardSet(directory, shards, metadata, cache or ShardCache())


def named_shards(
    directory: str, metadata: Mapping[str, Any]
) -> dict[str, list[ShardInfo]]:
    """Returns the shards of each split, by metadata.json.

    Raises:
        UserError: if it does not name them, or names one elsewhere.
    """
    path = os.path.join(directory, METADATA_NAME)
    try:
        splits = {
            split: [ShardInfo(**shard) for shard in entry["shards"]]
            for split, entry in sorted(metadata["splits"].items())
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} does not name the shards of each split ({error}); build "
            "the shards again."
        ) from None
    for shard in itertools.chain(*splits.values()):
        require(
            shard.name == os.path.basename(shard.name),
            f"{path} names the shard {shard.name!r}; expected a name within "
            "the directory.",
        )
    return splits


def read_metadata(directory: files.Path) -> dict[str, Any]:
    """Returns a shard directory's metadata.json.

    Raises:
        UserError: if the directory is missing or unfinished, or written by
            another version of the format.
    """
    directory = os.fspath(directory)
    require(
        files.isdir(directory or "."),
        f"{directory} is not a directory of shards.",
    )
    path = os.path.join(directory, METADATA_NAME)
    if not files.isfile(path):
        raise UserError(_without_metadata(directory or "."))
    metadata = read_json(path)
    version = metadata.get("format_version")
    require(
        version == FORMAT_VERSION,
        f"{path} has format_version={version!r}; expected {FORMAT_VERSION}. "
        "Build the shards again.",
    )
    return metadata


def _without_metadata(directory: str) -> str:
    """Returns a message about a directory that no build has finished."""
    names = files.listdir(directory)
    if WORK_DIRECTORY in names:
        return (
            f"{directory} has no {METADATA_NAME}, so its shards are "
            "unfinished; run build_pretraining_data again with this output "
            "directory to finish it."
        )
    records = [name for name in names if _TFRECORD.search(name)]
    if records:
        return (
            f"{directory} has {records[0]} but no {METADATA_NAME}, which a "
            "build writes beside its shards; copy it too, or import shards of "
            "google-research/albert by build_pretraining_data --import_shards."
        )
    found = f"it has {listed(names)}" if names else "it is empty"
    return (
        f"{directory} is not a directory of shards ({found}); make shards of "
        "text by build_pretraining_data --input=TEXT --output_dir=SHARDS, and "
        "give their directory."
    )


def _spans(
    path: str, copy: ShardCopy | None, shard: ShardInfo
) -> tuple[np.ndarray, np.ndarray]:
    """Returns offsets and lengths of a shard's records, or raises UserError."""
    if copy is None:
        return _verified_spans(path, path, shard)
    verify = functools.partial(_verified_spans, path, shard=shard)
    return copy.spans(path, shard.num_bytes, verify)


def _opened(path: str, copy: ShardCopy | None, shard: ShardInfo) -> int | None:
    """Returns a descriptor of a shard or its copy, None without a copy."""
    if copy is None:
        return os.open(path, os.O_RDONLY)
    if not copy.stays:
        return None
    verify = functools.partial(_verified_spans, path, shard=shard)
    return copy.open(path, shard.num_bytes, verify)


def _verified_spans(
    path: str, local: str, shard: ShardInfo
) -> tuple[np.ndarray, np.ndarray]:
    """Returns offsets and lengths of the records at `local`, once checked."""
    try:
        num_bytes = os.path.getsize(local)
    except OSError as error:
        raise UserError(
            f"{path} is missing ({error.strerror}); {METADATA_NAME} names it."
        ) from None
    require(
        num_bytes == shard.num_bytes,
        f"{path} has {num_bytes} bytes, {METADATA_NAME} says "
        f"{shard.num_bytes}: it was cut or replaced. Copy it again or build "
        "the shards again.",
    )
    with open(local, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        require(
            digest == shard.sha256,
            f"{path} has sha256 {digest}, {METADATA_NAME} says "
            f"{shard.sha256}: its contents changed. Copy it again or build "
            "the shards again.",
        )
        offsets, lengths = record_spans(file.fileno())
    require(
        len(offsets) == shard.num_records,
        f"{path} has {len(offsets)} records, {METADATA_NAME} says "
        f"{shard.num_records}.",
    )
    return offsets, lengths


def _close_all(descriptors: Sequence[int | None]) -> None:
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)
