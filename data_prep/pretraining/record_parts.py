"""Holds records on disk between their making and their shard.

Keys are random, so the records of a split in the order of their keys are a
shuffle of all of them, whatever order they were made in. A `Partition` cuts
the range of keys into shards. `PartWriter` writes the records of a unit of
work, in runs sorted by key; `shard_records` gathers a shard from all runs, a
bounded part of it at a time. A part counts once its JSON file exists, which
is written last: a resumed build makes the missing ones.
"""

import dataclasses
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.records.shards import shard_name
from data_prep.pretraining.record_maker import RecordBatch

# Bytes of records that a writer holds before it writes a run.
RUN_BYTES = 32_000_000
# Bytes of records that gathering a shard sorts in memory, about.
SORTED_BYTES = 64_000_000

_HEADER = struct.Struct("<QI")  # key, length


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

    def shards_of(self, split: str, keys: np.ndarray) -> np.ndarray:
        """Returns the shard of each key `[n]`; it grows with the key."""
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


class PartWriter:
    """Writes the records of one unit of work."""

    def __init__(
        self, directory: str, number: int, partition: Partition
    ) -> None:
        self._path = _part_path(directory, number)
        self._partition = partition
        self._batches: list[RecordBatch] = []
        self._num_bytes = 0
        self._num_runs = 0

    def add(self, batch: RecordBatch) -> None:
        """Adds records."""
        self._batches.append(batch)
        self._num_bytes += sum(map(len, batch.serialized))
        if self._num_bytes >= RUN_BYTES:
            self._write_run()

    def finish(self, counts: Mapping[str, int]) -> None:
        """Ends the part and stores the counts with it."""
        if self._batches:
            self._write_run()
        write_json(
            f"{self._path}.json",
            {"num_runs": self._num_runs, "counts": dict(counts)},
        )

    def _write_run(self) -> None:
        """Writes the batches: records by split and key, then the offsets.

        The offsets, uint64, are for each split those of each shard's begin
        and the last one's end.
        """
        offsets = []
        position = 0
        with files.replacing(f"{self._path}-{self._num_runs}") as file:
            for split in sorted(self._partition.num_shards):
                of_split, entries = self._sorted(split)
                offsets.append(of_split + np.uint64(position))
                position += int(of_split[-1])
                file.writelines(entries)
            file.write(np.concatenate(offsets).astype("<u8").tobytes())
        self._num_runs += 1
        self._batches = []
        self._num_bytes = 0

    def _sorted(self, split: str) -> tuple[np.ndarray, list[bytes]]:
        """Returns the shard offsets of a split, and its entries by key."""
        batches = [b for b in self._batches if b.split == split]
        keys = np.concatenate(
            [np.zeros(0, np.uint64), *(b.keys for b in batches)]
        )
        serialized = [record for b in batches for record in b.serialized]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        sizes = np.array([len(serialized[n]) for n in order], np.uint64)
        ends = np.cumsum(sizes + np.uint64(_HEADER.size), dtype=np.uint64)
        ends = np.concatenate([np.zeros(1, np.uint64), ends])
        shards = np.arange(self._partition.num_shards[split] + 1)
        of_keys = self._partition.shards_of(split, keys)
        entries = []
        for number, key in zip(order.tolist(), keys.tolist(), strict=True):
            record = serialized[number]
            entries += (_HEADER.pack(key, len(record)), record)
        return ends[np.searchsorted(of_keys, shards)], entries


def _part_path(directory: str, number: int) -> str:
    return os.path.join(directory, f"part-{number:06}")


def part_counts(directory: str, number: int) -> Counter[str] | None:
    """Returns the counts of a part, None if it has not been finished."""
    path = f"{_part_path(directory, number)}.json"
    if not os.path.exists(path):
        return None
    return Counter(read_json(path)["counts"])


def list_runs(directory: str) -> list[str]:
    """Returns the paths of the runs of all finished parts."""
    parts = sorted(
        os.path.join(directory, name.removesuffix(".json"))
        for name in os.listdir(directory)
        if name.startswith("part-") and name.endswith(".json")
    )
    return [
        f"{part}-{run}"
        for part in parts
        for run in range(read_json(f"{part}.json")["num_runs"])
    ]


def shard_records(
    runs: Sequence[str], partition: Partition, split: str, shard: int
) -> Iterator[bytes]:
    """Yields the records of a shard, from all runs, by ascending key."""
    segments = [_segment(run, partition, split, shard) for run in runs]
    segments = [s for s in segments if s.position < s.end]
    num_bytes = sum(s.end - s.position for s in segments)
    first, end = partition.key_range(split, shard)
    num_steps = 1 + num_bytes // SORTED_BYTES
    for step in range(1, num_steps + 1):
        past = first + (end - first) * step // num_steps
        entries = [entry for s in segments for entry in s.entries_below(past)]
        # Equal keys, which chance may bring once in a great while, fall back
        # on the records themselves.
        entries.sort()
        for _, record in entries:
            yield record


@dataclasses.dataclass
class _Segment:
    """A shard's part of a run, read by ascending key."""

    path: str
    position: int
    end: int

    def entries_below(self, key: int) -> list[tuple[int, bytes]]:
        """Returns the next entries, those with keys below `key`."""
        entries: list[tuple[int, bytes]] = []
        if self.position == self.end:
            return entries
        with open(self.path, "rb") as file:
            file.seek(self.position)
            while self.position < self.end:
                found, length = _HEADER.unpack(file.read(_HEADER.size))
                if found >= key:
                    break
                entries.append((found, file.read(length)))
                self.position += _HEADER.size + length
        return entries


def _segment(
    path: str, partition: Partition, split: str, shard: int
) -> _Segment:
    # A split has an offset more than it has shards.
    following = sum(
        number + 1
        for other, number in partition.num_shards.items()
        if other >= split
    )
    with open(path, "rb") as file:
        file.seek(8 * (shard - following), os.SEEK_END)
        begin, end = np.frombuffer(file.read(16), "<u8").tolist()
    return _Segment(path, begin, end)
