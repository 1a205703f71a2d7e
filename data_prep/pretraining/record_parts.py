"""Stores records on disk until they are gathered into shards.

Keys are random, so the records of a split in the order of their keys are a
shuffle of all of them, whatever order they were made in. A `Partition` cuts
the range of keys into shards. `write_part` writes the records of a unit of
work, in runs sorted by key; `shard_records` gathers a shard from all runs, a
bounded part of it at a time. A part counts once its JSON file exists, which
is written last: a resumed build makes the missing ones.
"""

import dataclasses
import os
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.records.shards import shard_name
from data_prep.pretraining.record_maker import RecordBatch

# Bytes of records that a writer holds before it writes a run.
RUN_BYTES = 32_000_000
# Bytes of records that gathering a shard sorts in memory, about.
SORTED_BYTES = 64_000_000

# An entry is a record behind its key, big endian: entries sort as keys do.
# Equal keys, which chance may bring once in a great while, fall back on the
# records themselves.
KEY_BYTES = 8
_LENGTH = struct.Struct("<I")  # an entry's length


@dataclasses.dataclass(frozen=True)
class Partition:
    """The number of shards of each split."""

    num_shards: Mapping[str, int]

    def shards(self) -> list[tuple[str, int]]:
        """Returns the split and number of every shard."""
        return [
            (split, shard)
            for split in sorted(self.num_shards)
            for shard in range(self.num_shards[split])
        ]

    def entries(self, batch: RecordBatch) -> dict[tuple[str, int], list[bytes]]:
        """Returns the entries of a batch by shard."""
        shards = self.shards_of(batch.split, batch.keys).tolist()
        keys = batch.keys.astype(f">u{KEY_BYTES}").tobytes()
        entries = defaultdict(list)
        for number, record in enumerate(batch.serialized):
            key = keys[number * KEY_BYTES : (number + 1) * KEY_BYTES]
            entries[batch.split, shards[number]].append(key + record)
        return entries

    def shards_of(self, split: str, keys: np.ndarray) -> np.ndarray:
        """Returns the shard of each key `[n]`, which ascends with the key."""
        # The high half is enough, and leaves room for the product.
        high = keys >> np.uint64(32)
        return (high * np.uint64(self.num_shards[split])) >> np.uint64(32)

    def key_range(self, split: str, shard: int) -> tuple[int, int]:
        """Returns the first key of a shard and that past its last."""
        begin, end = (
            -(-(number << 32) // self.num_shards[split]) << 32
            for number in (shard, shard + 1)
        )
        return begin, end

    def shard_name(self, split: str, shard: int) -> str:
        """Returns the file name of a shard."""
        return shard_name(split, shard, self.num_shards[split])


def write_part(
    directory: str,
    number: int,
    partition: Partition,
    batches: Iterable[RecordBatch],
    counts: Mapping[str, int],
    digest: str,
) -> list[str]:
    """Writes the records of one unit of work; returns the paths of its runs.

    `counts`, once all batches have been taken, and the digest of the unit's
    documents are stored with them.
    """
    part = _part_path(directory, number)
    runs: list[str] = []
    for entries in _in_runs(batches, partition):
        # The entries by shard and key, then where each shard ends.
        path = f"{part}-{len(runs)}"
        ends = [0]
        with files.replacing(path) as file:
            for shard in partition.shards():
                for entry in sorted(entries[shard]):
                    file.write(_LENGTH.pack(len(entry)))
                    file.write(entry)
                ends.append(file.tell())
            file.write(np.array(ends, "<u8").tobytes())
        runs.append(path)
    found = {"num_runs": len(runs), "counts": dict(counts), "digest": digest}
    write_json(f"{part}.json", found)
    return runs


def _in_runs(
    batches: Iterable[RecordBatch], partition: Partition
) -> Iterator[dict[tuple[str, int], list[bytes]]]:
    """Yields the entries of each run by shard."""
    entries: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    num_bytes = 0
    for batch in batches:
        for shard, of_shard in partition.entries(batch).items():
            entries[shard] += of_shard
        num_bytes += sum(map(len, batch.serialized))
        if num_bytes >= RUN_BYTES:
            yield entries
            entries.clear()
            num_bytes = 0
    if entries:
        yield entries


def _part_path(directory: str, number: int) -> str:
    return os.path.join(directory, f"unit-{number:06}")


def read_part(
    directory: str, number: int, digest: str
) -> tuple[Counter[str], list[str]] | None:
    """Returns a part's counts and the paths of its runs.

    None if it is unfinished, or of documents with another digest.
    """
    path = _part_path(directory, number)
    if not os.path.exists(f"{path}.json"):
        return None
    part = read_json(f"{path}.json")
    if part.get("digest") != digest:
        return None
    runs = [f"{path}-{run}" for run in range(part["num_runs"])]
    return Counter(part["counts"]), runs


def records_by_key(entries: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the records of entries by ascending key."""
    return (entry[KEY_BYTES:] for entry in sorted(entries))


def shard_records(
    runs: Sequence[str], partition: Partition, split: str, shard: int
) -> Iterator[bytes]:
    """Yields the records of a shard, from all runs, by ascending key."""
    shards = partition.shards()
    from_end = shards.index((split, shard)) - len(shards) - 1
    stretches = [_Stretch(run, from_end) for run in runs]
    num_bytes = sum(s.end - s.position for s in stretches)
    first, end = partition.key_range(split, shard)
    num_steps = 1 + num_bytes // SORTED_BYTES
    for step in range(1, num_steps + 1):
        past = first + (end - first) * step // num_steps
        entries = [e for s in stretches for e in s.entries_below(past)]
        yield from records_by_key(entries)


class _Stretch:
    """A shard's part of a run, read by ascending key."""

    def __init__(self, path: str, from_end: int) -> None:
        self._path = path
        with open(path, "rb") as file:
            file.seek(8 * from_end, os.SEEK_END)
            ends = np.frombuffer(file.read(16), "<u8").tolist()
        self.position, self.end = ends

    def entries_below(self, key: int) -> Iterator[bytes]:
        """Yields the next entries, those with keys below `key`."""
        if self.position == self.end:
            return
        with open(self._path, "rb") as file:
            file.seek(self.position)
            while self.position < self.end:
                (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
                entry = file.read(length)
                if int.from_bytes(entry[:KEY_BYTES], "big") >= key:
                    return
                yield entry
                self.position += _LENGTH.size + length
