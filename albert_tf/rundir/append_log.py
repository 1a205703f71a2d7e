"""A file that grows by whole entries and outlives a full disk."""

import collections
import contextlib
import os
from collections.abc import Callable

from albert_tf.io import files

# Bytes of entries that wait for a disk; the oldest go first.
MAX_WAITING_BYTES = 64 << 20


class AppendLog:
    """Appends entries to a file; what cannot be written waits.

    A run is worth more than its log: where writing fails, that is said once,
    the file is cut back to its last whole entry, and the entries are tried
    again with the next one. At most MAX_WAITING_BYTES of them are kept.
    """

    def __init__(self, path: str, say: Callable[[str], None]) -> None:
        """Names the file; it is made with the first entry.

        Args:
            path: the file; its directory is made where missing.
            say: prints a line.
        """
        self._path = path
        self._say = say
        self._file: _OnDisk | _InBucket | None = None
        self._waiting: collections.deque[bytes] = collections.deque()
        self._num_lost = 0
        self._failing = False

    def append(self, entry: bytes) -> None:
        """Adds an entry; on a disk others may read it from then on."""
        self._waiting.append(entry)
        size = sum(map(len, self._waiting))
        while size > MAX_WAITING_BYTES:
            size -= len(self._waiting.popleft())
            self._num_lost += 1
        # A bucket takes a file as a whole: not one for every line.
        if not files.is_remote(self._path):
            self._write(sync=False)

    def sync(self) -> None:
        """Brings every entry to where it outlives the machine's end."""
        if self._waiting or self._file:
            self._write(sync=True)

    def close(self) -> None:
        """Brings every entry there, or says how many are lost."""
        self.sync()
        self._num_lost += len(self._waiting)
        self._waiting.clear()
        if self._num_lost:
            self._say(
                f"{self._path} could not be written: its last "
                f"{self._num_lost} entries are lost."
            )
        if self._file:
            self._file.close()
            self._file = None

    def _write(self, *, sync: bool) -> None:
        try:
            if not self._file:
                remote = files.is_remote(self._path)
                self._file = (_InBucket if remote else _OnDisk)(self._path)
            self._file.write(b"".join(self._waiting), sync=sync)
        except OSError as error:
            if not self._failing:
                self._failing = True
                self._say(
                    f"{self._path} cannot be written: {error.strerror}. The "
                    "run goes on; its log is kept in memory and tried again."
                )
            return
        self._waiting.clear()
        if self._failing:
            lost = f"; {self._num_lost} entries are lost"
            self._say(
                f"{self._path} can be written again"
                f"{lost if self._num_lost else ''}."
            )
            self._failing, self._num_lost = False, 0


class _OnDisk:
    """A file of the operating system, which is open all the time."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666
        )
        self._end = os.lseek(self._descriptor, 0, os.SEEK_END)
        self._torn = False

    def write(self, data: bytes, *, sync: bool) -> None:
        """Writes all of it, or raises OSError and leaves nothing of it."""
        if self._torn:
            os.ftruncate(self._descriptor, self._end)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            if sync:
                os.fsync(self._descriptor)
        except OSError:
            self._torn = True
            # Readers see no half entry; where this fails it is tried again.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._end)
            raise
        self._torn = False
        self._end += len(data)

    def close(self) -> None:
        os.close(self._descriptor)


class _InBucket:
    """A file that TensorFlow reads and sends anew to make it longer."""

    def __init__(self, path: str) -> None:
        files.makedirs(os.path.dirname(path))
        self._path = path

    def write(self, data: bytes, *, sync: bool) -> None:
        """Writes all of it, or raises OSError."""
        if data:
            with files.open(self._path, "ab") as file:
                file.write(data)

    def close(self) -> None:
        """Does nothing: it is open only while it is written."""
