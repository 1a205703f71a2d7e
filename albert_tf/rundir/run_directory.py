"""The run directory: whose run it is, and which job is at it."""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from albert_tf.config import (
    Config,
    RuntimeConfig,
    TrainingConfig,
    UserError,
    differences,
    override,
)
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json

CONFIG = "config.json"
_LOCK = "lock"
# Where config.json has the settings that changed while the run went on.
_CHANGES = "changes"
# A system's lock reaches as far as the system. For jobs elsewhere the holder
# renews the file, and is given up when it has been silent for so long; the
# clocks of two machines need not agree.
_RENEWAL_SECONDS = 4.0
_SILENCE_SECONDS = 60.0


def extended(config: Config, runtime: RuntimeConfig) -> Config:
    """Returns the configuration of a run, lengthened where that is asked for.

    Raises:
        UserError: when it would not become longer.
    """
    steps = config.training.num_train_steps
    if not runtime.extend_to_steps:
        return config
    if runtime.extend_to_steps <= steps:
        raise UserError(
            f"extend_to_steps={runtime.extend_to_steps} is not more than the "
            f"{steps} steps of the run."
        )
    return override(config, {"num_train_steps": runtime.extend_to_steps})


def claim(
    run_dir: str, description: dict, *, extends: bool = False
) -> dict[str, list]:
    """Makes the run directory, or checks that it holds this very run.

    Args:
        run_dir: made where missing.
        description: everything that decides the run, JSON-ready; written to
            `config.json` before the first step.
        extends: whether the run may be longer than it was.

    Returns:
        Settings that may change and have: by name, the value that
        `config.json` has and the new one, for `record_changes`.

    Raises:
        UserError: when the directory belongs to another configuration
            (the differences are listed), holds something else, or cannot be
            written; when a run that has not begun is to be longer.
    """
    path = os.path.join(run_dir, CONFIG)
    with _told(run_dir):
        if files.isfile(path):
            return _changes(run_dir, description, read_json(path), extends)
        _refuse_foreign(run_dir)
        if extends:
            raise UserError(
                f"extend_to_steps is for a run that has begun, and {run_dir} "
                "holds none; give --num_train_steps."
            )
        files.makedirs(run_dir)
        write_json(path, description)
    return {}


def _changes(
    run_dir: str, description: dict, recorded: dict, extends: bool
) -> dict[str, list]:
    """Returns the changed settings that may change; refuses other changes."""
    recorded.pop(_CHANGES, None)
    ours, theirs = _training(description), _training(recorded)
    names = [
        field.name
        for field in dataclasses.fields(TrainingConfig)
        if field.metadata["may_change"]
        or (extends and field.name == "num_train_steps")
    ]
    changes = {
        name: [theirs[name], ours[name]]
        for name in names
        if name in theirs and theirs[name] != ours[name]
    }
    before, after = (s.get("num_train_steps", 0) for s in (theirs, ours))
    theirs.update((name, new) for name, (_, new) in changes.items())
    lines = differences(description, recorded)
    if extends and after < before:
        lines = [f"it has {before} steps already"]
    if lines:
        hint = ""
        if not extends and after != before:
            hint = (
                ", with --extend_to_steps="
                f"{max(after, before)} where it is to be that long"
            )
        raise UserError(
            f"{run_dir} holds a run of another configuration "
            f"({'; '.join(lines)}); give the same settings to go on with "
            f"it{hint}, or another --run_dir."
        )
    return changes


def _training(description: dict) -> dict:
    """Returns the section of a description that has settings that change."""
    return description.get("config", {}).get("training", {})


def record_changes(
    run_dir: str, description: dict, changes: dict[str, list], step: int
) -> None:
    """Writes config.json anew, with what changed after which step.

    Args:
        run_dir: of a run that was claimed.
        description: as it was claimed.
        changes: what `claim` returned.
        step: updates made before.

    Raises:
        UserError: when it cannot be written.
    """
    path = os.path.join(run_dir, CONFIG)
    with _told(run_dir):
        earlier = read_json(path).get(_CHANGES, [])
        change = {"after_step": step, "settings": changes}
        write_json(path, {**description, _CHANGES: [*earlier, change]})


@contextlib.contextmanager
def locked(run_dir: str) -> Iterator[None]:
    """Keeps every other job off a run directory, which is made if missing.

    The lock of a job that is gone is taken over: at once where it ran on this
    machine and the directory is on a disk, else when it has given no sign of
    life for a minute.

    Raises:
        UserError: when another job holds it (its process, machine and
            beginning are told), or it cannot be written.
    """
    path = os.path.join(run_dir, _LOCK)
    us = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(" ", "seconds"),
    }
    take = _lock_in_a_bucket if files.is_remote(path) else _lock_on_a_disk
    with contextlib.ExitStack() as stack:
        with _told(run_dir):
            _refuse_foreign(run_dir)
            files.makedirs(run_dir)
            renew = stack.enter_context(take(path, us))
        stack.enter_context(_repeating(renew))
        yield


def check_not_in_use(run_dir: str) -> None:
    """Raises UserError where the system knows that another job holds it.

    For programs that have yet to load TensorFlow; `locked` decides. Buckets,
    and file systems without locks, are left to it.
    """
    path = os.path.join(run_dir, _LOCK)
    if files.is_remote(path):
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        # Shared: two jobs that look at once are not in each other's way.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        held = os.pread(descriptor, 1000, 0).decode(errors="replace")
        raise _held(path, held) from None
    except OSError:
        return
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _told(run_dir: str) -> Iterator[None]:
    """Tells the system's refusals as a user's mistake."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{run_dir} cannot be used as run directory: {error.strerror}. "
            "Give a --run_dir that can be written."
        ) from None


def _refuse_foreign(run_dir: str) -> None:
    """Raises UserError if there is something that is no run."""
    if not files.exists(run_dir):
        return
    names = files.listdir(run_dir) if files.isdir(run_dir) else [""]
    # A job that was killed before its config.json was there left but these.
    ours = {_LOCK, CONFIG}
    if CONFIG not in names and not all(
        name in ours or name.startswith(f"{CONFIG}.tmp-") for name in names
    ):
        raise UserError(
            f"{run_dir} exists and is not a run directory (it has no "
            f"{CONFIG}); give another --run_dir."
        )


@contextlib.contextmanager
def _lock_on_a_disk(path: str, us: dict) -> Iterator[Callable[[], None]]:
    """Holds a file that the system locks; gives what renews it.

    The system frees the lock when the process ends, however it ends.
    """
    descriptor, reached = _locked_descriptor(path)
    try:
        before = os.pread(descriptor, 1000, 0).decode(errors="replace")
        here = reached and _holder(before).get("host") == us["host"]
        if before and not here:
            _wait_for_silence(path, before)
        count = 0

        def renew() -> None:
            nonlocal count
            count += 1
            content = _content(us, count)
            os.pwrite(descriptor, content, 0)
            os.ftruncate(descriptor, len(content))

        renew()
        try:
            yield renew
        finally:
            # Before it is freed: whoever gets it then sees that its file is
            # gone, and makes one anew.
            with contextlib.suppress(OSError):
                os.remove(path)
    finally:
        os.close(descriptor)


def _locked_descriptor(path: str) -> tuple[int, bool]:
    """Returns the open file of a name, and whether the system locks it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            named = os.stat(path)
            if os.path.samestat(named, os.fstat(descriptor)):
                return descriptor, True
        except FileNotFoundError:
            # Its holder has just ended.
            pass
        except BlockingIOError:
            held = os.pread(descriptor, 1000, 0).decode(errors="replace")
            os.close(descriptor)
            raise _held(path, held) from None
        except OSError as error:
            # Some network file systems know no locks: the renewal is all.
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                return descriptor, False
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextlib.contextmanager
def _lock_in_a_bucket(path: str, us: dict) -> Iterator[Callable[[], None]]:
    """Holds a file that is renewed while the job runs; gives what renews it.

    Buckets know no locks. Of two jobs that begin in the same second the one
    that wrote first gives way.
    """
    before = _text(path)
    if before:
        _wait_for_silence(path, before)
    count = 0

    def renew() -> None:
        nonlocal count
        count += 1
        with files.open(path, "wb") as file:
            file.write(_content(us, count))

    renew()
    time.sleep(1)
    written = _text(path)
    if written != _content(us, count).decode():
        raise _held(path, written)
    try:
        yield renew
    finally:
        with contextlib.suppress(OSError):
            files.remove(path)


def _wait_for_silence(path: str, before: str) -> None:
    """Returns when the holder gives no sign of life; else raises UserError."""
    print(
        f"{path} was left by another job; if it gives no sign of life within "
        f"{_SILENCE_SECONDS:g} seconds, this one takes over.",
        flush=True,
    )
    until = time.monotonic() + _SILENCE_SECONDS
    while time.monotonic() < until:
        time.sleep(_RENEWAL_SECONDS / 8)
        now = _text(path)
        if now != before:
            raise _held(path, now or before)


@contextlib.contextmanager
def _repeating(renew: Callable[[], None]) -> Iterator[None]:
    """Renews the lock in a thread for as long as the context lasts."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(_RENEWAL_SECONDS):
            # A full disk or a lost connection: the next time may succeed.
            with contextlib.suppress(OSError):
                renew()

    thread = threading.Thread(target=repeat, name="lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _content(us: dict, count: int) -> bytes:
    return (json.dumps({**us, "renewed": count}) + "\n").encode()


def _text(path: str) -> str:
    """Returns what is written in a lock; nothing where it is gone."""
    try:
        with files.open(path) as file:
            return file.read(1000).decode(errors="replace")
    except FileNotFoundError:
        return ""


def _holder(content: str) -> dict:
    """Returns what a lock says of its holder; nothing where it is cut."""
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _held(path: str, content: str) -> UserError:
    holder = _holder(content)
    who = "another job"
    if holder:
        who = (
            f"process {holder.get('pid')} on {holder.get('host')}, which "
            f"runs since {holder.get('since')}"
        )
    return UserError(
        f"{os.path.dirname(path)} is in use by {who}. End that job first, or "
        "give another --run_dir."
    )
