"""Holds records on disk while a corpus is read, and returns them in key order.

Main entry: `RecordSpool`. Keys are random, so their order is a shuffle of all
records, whatever order they came in.
"""

import os
import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO


class RecordSpool:
    """Records in buckets by key; a bucket is sorted in memory.

    `num_records` and `num_bytes` count by split. The number of buckets
    changes memory and open files, never the order.
    """

    _HEADER = struct.Struct(">QI")  # key, length

    def __init__(self, directory: str, num_buckets: int) -> None:
        self._directory = directory
        self._num_buckets = num_buckets
        self._files: dict[str, BinaryIO] = {}
        self.num_records: Counter[str] = Counter()
        self.num_bytes: Counter[str] = Counter()

    def add(self, split: str, key: int, serialized: bytes) -> None:
        """Takes a record in."""
        bucket = key * self._num_buckets >> 64
        path = self._path(split, bucket)
        if path not in self._files:
            self._files[path] = open(path, "wb")  # noqa: SIM115 (see flush)
        file = self._files[path]
        file.write(self._HEADER.pack(key, len(serialized)))
        file.write(serialized)
        self.num_records[split] += 1
        self.num_bytes[split] += len(serialized)

    def flush(self) -> None:
        """Ends the taking in."""
        for file in self._files.values():
            file.close()

    def records(self, split: str) -> Iterator[bytes]:
        """Yields a split's records by ascending key; they leave the spool."""
        for bucket in range(self._num_buckets):
            path = self._path(split, bucket)
            if path in self._files:
                for _, serialized in sorted(self._read(path)):
                    yield serialized
                os.remove(path)

    def remove(self) -> None:
        """Removes the spool's directory."""
        shutil.rmtree(self._directory)

    def _path(self, split: str, bucket: int) -> str:
        return os.path.join(self._directory, f"{split}-{bucket:03}")

    def _read(self, path: str) -> Iterator[tuple[int, bytes]]:
        with open(path, "rb") as file:
            while header := file.read(self._HEADER.size):
                key, length = self._HEADER.unpack(header)
                yield key, file.read(length)
