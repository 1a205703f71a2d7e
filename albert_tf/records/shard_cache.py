"""Copies of a bucket's shards on this machine's disk: `ShardCache`.

They lie in the user's directory for temporary files, a directory for each set
of shards, and stay for the next time. The directory may have a limit: then
sets that are not read are removed first, the oldest ones, and
the shards of a set are copied in their order as long as they fit. Of the
others only the places of their records stay.
"""

import contextlib
import itertools
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.config import UserError, require
from albert_tf.io import files, object_stores

_COPY_BYTES = 1 << 24
# Since its last write, a file of another process is not being written.
_LEFT_SECONDS = 3600.0
# Shards that are copied only to find their records: so many at a time.
_PASSING = 2

Spans = tuple[np.ndarray, np.ndarray]


class ShardCopy(NamedTuple):
    """A shard's place in the cache."""

    path: str
    stays: bool
    passing: threading.Semaphore  # bounds the copies that do not stay

    def spans(
        self, source: str, num_bytes: int, verify: Callable[[str], Spans]
    ) -> Spans:
        """Returns offset and length of each record; copies the shard for it.

        `verify` finds them in a copy, and raises UserError if it is damaged.
        """
        if self.stays:
            with contextlib.suppress(UserError):
                return verify(self.path)
            return self._copied(source, num_bytes, verify)
        index = f"{self.path}.npy"
        with contextlib.suppress(OSError, ValueError, EOFError):
            offsets, lengths = np.load(index)
            return offsets, lengths
        # Another process may find its records at the same time.
        passing = self._replace(path=files.temporary_name(self.path))
        with self.passing:
            try:
                found = passing._copied(source, num_bytes, verify)
            finally:
                with contextlib.suppress(OSError):
                    files.remove(passing.path)
        with files.replacing(index) as file:
            np.save(file, np.stack(found))
        return found

    def open(
        self, source: str, num_bytes: int, verify: Callable[[str], Spans]
    ) -> int:
        """Returns a descriptor of a copy that stays."""
        with contextlib.suppress(FileNotFoundError):
            return os.open(self.path, os.O_RDONLY)
        # Another process has made room since the copy was verified.
        self._copied(source, num_bytes, verify)
        return os.open(self.path, os.O_RDONLY)

    def _copied(
        self, source: str, num_bytes: int, verify: Callable[[str], Spans]
    ) -> Spans:
        """Copies the shard; returns its spans."""
        _copy(source, self.path, num_bytes)
        try:
            return verify(self.path)
        except UserError:
            # Bytes may have been lost on the way.
            _copy(source, self.path, num_bytes)
            return verify(self.path)


class ShardCache:
    """The copies of several sets, which together have at most `max_bytes`."""

    def __init__(self, max_bytes: float = math.inf) -> None:
        self._max_bytes = max_bytes
        self._passing = threading.Semaphore(_PASSING)
        # Bytes of the sets that are read, by fingerprint.
        self._in_use: dict[str, int] = {}

    def copies(
        self, fingerprint: str, shards: Sequence[tuple[str, int]]
    ) -> list[ShardCopy]:
        """Returns the places of a set's shards, for which it makes room.

        Each has a name and a number of bytes.
        """
        cache = _own_cache()
        directory = os.path.join(cache, fingerprint)
        self._in_use.pop(fingerprint, None)
        room = self._max_bytes - sum(self._in_use.values())
        ends = itertools.accumulate(num_bytes for _, num_bytes in shards)
        kept = [end for end in ends if end <= room]
        self._in_use[fingerprint] = max(kept, default=0)
        copies = [
            ShardCopy(
                os.path.join(directory, name), n < len(kept), self._passing
            )
            for n, (name, _) in enumerate(shards)
        ]
        os.makedirs(directory, exist_ok=True)
        os.utime(directory)
        # Another process may remove the same.
        with contextlib.suppress(FileNotFoundError):
            _remove_files(directory, copies)
            self._remove_sets(cache)
        return copies

    def _remove_sets(self, cache: str) -> None:
        """Removes sets that are not in use, the oldest ones, down to the limit.

        A process that reads one keeps its open files.
        """
        room = self._max_bytes - sum(self._in_use.values())
        sets = [os.path.join(cache, name) for name in os.listdir(cache)]
        for path in sorted(sets, key=os.path.getmtime, reverse=True):
            if os.path.basename(path) in self._in_use:
                continue
            room -= sum(files.sizes(path).values())
            if room < 0:
                shutil.rmtree(path, ignore_errors=True)


def _remove_files(directory: str, copies: Sequence[ShardCopy]) -> None:
    """Removes copies that no longer stay, and what kills have left."""
    leaving = {copy.path for copy in copies if not copy.stays}
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        age = time.time() - os.path.getmtime(path)
        if path in leaving or (files.unfinished(name) and age > _LEFT_SECONDS):
            os.remove(path)


def _own_cache() -> str:
    """Returns a directory for copies that other users cannot write to."""
    path = os.path.join(tempfile.gettempdir(), f"albert_tf-{os.getuid()}")
    os.makedirs(path, 0o700, exist_ok=True)
    require(
        os.stat(path).st_uid == os.getuid(),
        f"{path} is another user's; set TMPDIR to a directory of your own.",
    )
    return path


def _copy(source: str, target: str, num_bytes: int) -> None:
    """Copies a shard of the bucket, by several tries if need be."""

    def copy() -> None:
        with files.open(source) as file, files.replacing(target) as copied:
            shutil.copyfileobj(file, copied, _COPY_BYTES)

    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        object_stores.retrying(copy)
    except FileNotFoundError as error:
        raise UserError(f"{source} is missing ({error.strerror}).") from None
    except OSError as error:
        raise UserError(
            f"{source} ({num_bytes} bytes) cannot be copied to {target}: "
            f"{error.strerror}."
        ) from None
