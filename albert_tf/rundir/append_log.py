"""A log file that grows by whole entries and survives a full disk."""

import errno
import os

from albert_tf.config import Log
from albert_tf.io import files


class AppendLog:
    """Appends entries to a file; entries that fail are retried with the next.

    A full disk stops no run: the failure is logged once, and the file keeps
    whole entries only.
    """

    def __init__(self, path: str, log: Log) -> None:
        self._path = path
        self._log = log
        self._pending: list[bytes] = []
        self._has_directory = False
        self._failing = False

    def append(self, entry: bytes) -> None:
        """Adds an entry, which is on a disk at once."""
        self._pending.append(entry)
        # A bucket replaces whole objects: not for every line.
        if not files.is_remote(self._path):
            self._write(sync=False)

    def sync(self) -> None:
        """Writes every entry to durable storage."""
        self._write(sync=True)

    def close(self) -> None:
        """Writes every entry, or logs how many are lost."""
        self.sync()
        if self._pending:
            self._log(
                f"{self._path} could not be written: its last "
                f"{len(self._pending)} entries are lost."
            )

    def _write(self, *, sync: bool) -> None:
        try:
            # Only once: a run directory that was removed stays removed.
            if not self._has_directory:
                files.makedirs(os.path.dirname(self._path) or ".")
                self._has_directory = True
            _append(self._path, b"".join(self._pending), sync=sync)
        except OSError as error:
            if not self._failing:
                self._failing = True
                self._log(
                    f"{self._path} cannot be written: {error.strerror}. The "
                    "run continues; the log is kept in memory and retried."
                )
            return
        self._pending.clear()
        if self._failing:
            self._failing = False
            self._log(f"{self._path} can be written again.")


def _append(path: str, content: bytes, *, sync: bool) -> None:
    """Appends all of the content, or raises OSError and appends nothing."""
    if files.is_remote(path):
        if content:
            with files.open(path, "ab") as file:
                file.write(content)
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            if os.write(descriptor, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, end)
            raise
    finally:
        os.close(descriptor)
