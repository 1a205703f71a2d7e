"""Lock files: one job at a time works in a directory.

On a disk the system holds the lock (flock) and frees it when the process
ends, however it ends. That reaches as far as the system does: for jobs on
other machines, and in buckets, which have no locks, the holder rewrites the
file every few seconds, and its lock is taken over after a minute without; a
holder that was suspended so long ends as soon as it finds that. The clocks of
two machines need not agree.
"""

import contextlib
import errno
import fcntl
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import IO

from albert_tf.config import UserError
from albert_tf.io import files

_RENEWAL_SECONDS = 4.0
_EXPIRY_SECONDS = 60.0
# Jobs that start together see each other's lock file within this time.
_SETTLING_SECONDS = 1.0
_MAX_BYTES = 1000
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class _HeldError(Exception):
    """Another job holds the lock; the argument is the lock file's content."""


@contextlib.contextmanager
def locked(path: str, hint: str, subject: str = "") -> Iterator[None]:
    """Holds the lock file `path` for as long as the context lasts.

    `subject` is what the lock is for, by default the file's directory.

    The lock of a job that has ended is taken over: at once where it ran on
    this machine and the file is on a disk, else a minute after its last
    renewal.

    Raises:
        UserError: when another job holds it, with its process, machine and
            start, and `hint`.
        OSError: when it cannot be written.
    """
    subject = subject or os.path.dirname(path)
    owner = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(" ", "seconds"),
    }
    contents = (
        (json.dumps({**owner, "renewed": count}) + "\n").encode()
        for count in itertools.count(1)
    )
    take = _take_by_renewals if files.is_remote(path) else _take_local
    with contextlib.ExitStack() as stack:
        try:
            write = stack.enter_context(take(path, next(contents)))
        except _HeldError as error:
            raise _in_use(subject, str(error), hint) from None
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(_RENEWAL_SECONDS):
                try:
                    # A full disk or a lost connection: the next may succeed.
                    with contextlib.suppress(OSError):
                        _check_own(path, owner)
                        write(next(contents))
                except _HeldError as error:
                    # The job ends at once: whatever it wrote now would be the
                    # other's.
                    text = f"{_in_use(subject, str(error), hint)}\n"
                    with contextlib.suppress(OSError):
                        os.write(2, text.encode())
                    os._exit(1)

        thread = threading.Thread(target=renew, name="lock", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        yield


def lock_inheritably(file: IO) -> None:
    """Locks an open file of a disk until all processes have closed it.

    So a child that has it as its output holds the lock too, and goes on to
    when its parent is killed. Nothing is locked where the system has no locks.

    Raises:
        BlockingIOError: when another process holds it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def check_free(path: str, hint: str) -> None:
    """Raises UserError where the system knows that a job holds the lock.

    For programs that have yet to load TensorFlow; `locked` decides. Buckets,
    and file systems without locks, are left to it.
    """
    # A file in a bucket, and one that is not there, cannot be opened.
    with contextlib.suppress(OSError), open(path, "rb") as file:
        try:
            # Shared: two jobs that look at once are not in each other's way.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            content = _content(file.fileno())
            raise _in_use(os.path.dirname(path), content, hint) from None


@contextlib.contextmanager
def _take_local(path: str, content: bytes) -> Iterator[Callable[[bytes], None]]:
    """Locks a file with flock; yields a function that rewrites it."""
    with contextlib.ExitStack() as stack:
        is_there = False
        while not is_there:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A holder that has just ended has removed it.
                is_there = os.path.samestat(os.stat(path), os.fstat(descriptor))
            except FileNotFoundError:
                continue
            except BlockingIOError:
                raise _HeldError(_content(descriptor)) from None
            except OSError as error:
                # Some network file systems have no locks: renewals must do.
                if error.errno not in _NO_LOCKS:
                    raise
                yield stack.enter_context(_take_by_renewals(path, content))
                return

        def write(content: bytes) -> None:
            with files.naming(path, path):
                os.pwrite(descriptor, content, 0)
                os.ftruncate(descriptor, len(content))

        before = _content(descriptor)
        same_host = _holder(before).get("host") == socket.gethostname()
        if before and not same_host:
            _wait_for_expiry(path, before)
        try:
            write(content)
            yield write
        finally:
            # The file is removed before it is freed: the next holder then sees
            # that its file is gone, and creates a new one.
            with contextlib.suppress(OSError):
                os.remove(path)


@contextlib.contextmanager
def _take_by_renewals(
    path: str, content: bytes
) -> Iterator[Callable[[bytes], None]]:
    """Writes a lock file without flock; yields a function that rewrites it.

    Of two jobs that start at the same time the one that wrote first gives way.
    """
    before = _content_at(path)
    if before:
        _wait_for_expiry(path, before)

    def write(content: bytes) -> None:
        with files.naming(path, path), files.open(path, "wb") as file:
            file.write(content)

    write(content)
    time.sleep(_SETTLING_SECONDS)
    written = _content_at(path)
    if written != content.decode():
        raise _HeldError(written)
    try:
        yield write
    finally:
        with contextlib.suppress(OSError):
            files.remove(path)


def _check_own(path: str, owner: dict) -> None:
    """Raises _HeldError where another job has taken the lock over."""
    # Opened anew: a network file system may keep an open file's old content.
    found = _content_at(path)
    holder = _holder(found)
    if holder and not owner.items() <= holder.items():
        raise _HeldError(found)


def _wait_for_expiry(path: str, before: str) -> None:
    """Waits until the lock expires.

    Raises:
        _HeldError: when it is renewed.
    """
    print(
        f"{path} was left by another job; if that does not renew it within "
        f"{_EXPIRY_SECONDS:g} seconds, this one takes over.",
        flush=True,
    )
    deadline = time.monotonic() + _EXPIRY_SECONDS
    while time.monotonic() < deadline:
        time.sleep(_RENEWAL_SECONDS / 8)
        now = _content_at(path)
        if now != before:
            raise _HeldError(now or before)


def _content(descriptor: int) -> str:
    return os.pread(descriptor, _MAX_BYTES, 0).decode(errors="replace")


def _content_at(path: str) -> str:
    """Returns the content of a lock file; "" where it is gone."""
    try:
        with files.open(path) as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""


def _holder(content: str) -> dict:
    """Returns the owner that a lock file names, {} where it is cut."""
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _in_use(subject: str, content: str, hint: str) -> UserError:
    who = "another job"
    if holder := _holder(content):
        who = (
            f"process {holder.get('pid')} on {holder.get('host')}, which "
            f"runs since {holder.get('since')}"
        )
    return UserError(f"{subject} is in use by {who}. {hint}")
