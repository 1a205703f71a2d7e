"""One job holds a lock at a time; that of a job that has ended is free."""

import contextlib
import errno
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from albert_tf.config import UserError
from albert_tf.io import files, locks

HINT = "Choose another."
HOLDER = """
import sys, time
from albert_tf.io import locks
with locks.locked(sys.argv[1], ""):
    print("held", flush=True)
    time.sleep(60)
"""


def locked(directory):
    return locks.locked(f"{directory}/lock", HINT)


@pytest.fixture
def quick(monkeypatch):
    """Shortens the waits, in proportion."""
    monkeypatch.setattr(locks, "_RENEWAL_SECONDS", 0.04)
    monkeypatch.setattr(locks, "_EXPIRY_SECONDS", 0.6)


def test_a_second_job_is_refused_until_the_first_is_killed(tmp_path):
    path = str(tmp_path / "lock")
    locks.check_free(path, HINT)
    first = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    with first:
        try:
            assert first.stdout.readline() == "held\n"
            # The first refusal does not free the lock.
            for _ in range(2):
                with pytest.raises(UserError) as error, locked(tmp_path):
                    pass
            with pytest.raises(UserError, match=f"by process {first.pid}"):
                locks.check_free(path, HINT)
        finally:
            first.kill()
    year = time.strftime("%Y", time.gmtime())
    assert str(error.value).startswith(
        f"{tmp_path} is in use by process {first.pid} on "
        f"{socket.gethostname()}, which runs since {year}-"
    )
    assert str(error.value).endswith(f". {HINT}")
    assert os.listdir(tmp_path) == ["lock"]
    locks.check_free(path, HINT)
    locks.check_free(f"file://{path}", HINT)
    with locked(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_no_lock(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space") as error, locked(tmp_path):
        pass
    assert error.value.filename == f"{tmp_path}/lock"
    assert os.listdir(tmp_path) == []


def test_the_lock_is_free_again_when_the_job_fails(tmp_path):
    with pytest.raises(RuntimeError), locked(tmp_path):
        raise RuntimeError
    assert not any(t.name == "lock" for t in threading.enumerate())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("another", [False, True])
def test_a_lock_that_went_with_its_holder_is_made_anew(
    tmp_path, monkeypatch, another
):
    """The holder ends between our opening the file and our locking it."""
    path = tmp_path / "lock"
    original, calls = locks.fcntl.flock, 0

    def flock(*arguments):
        nonlocal calls
        calls += 1
        if calls == 1:
            path.unlink()
            if another:
                path.touch()
        original(*arguments)

    monkeypatch.setattr(locks.fcntl, "flock", flock)
    with locked(tmp_path):
        assert path.exists()
        with pytest.raises(UserError, match="in use by process"):
            locked(tmp_path).__enter__()
    assert calls == 3


def write_foreign_lock(path, count):
    content = {"pid": 7, "host": "elsewhere", "since": "2026", "renewed": count}
    with files.open(path, "w") as file:
        file.write(json.dumps(content))


@pytest.fixture
def a_job_elsewhere(monkeypatch):
    """Gives a function: from now on a lock is renewed while we sleep."""

    def renew(path):
        monkeypatch.setattr(
            locks.time, "sleep", lambda _: write_foreign_lock(path, 1)
        )

    return renew


WITHOUT_FLOCK = ["disk without locks", "bucket"]


@pytest.fixture(params=["disk", *WITHOUT_FLOCK])
def anywhere(request, tmp_path, monkeypatch):
    if request.param == "disk without locks":

        def flock(*_):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(locks.fcntl, "flock", flock)
    return f"file://{tmp_path}" if request.param == "bucket" else str(tmp_path)


def test_a_job_on_another_machine_is_noticed_by_its_renewals(
    anywhere, a_job_elsewhere
):
    files.makedirs(anywhere)
    write_foreign_lock(f"{anywhere}/lock", 0)
    a_job_elsewhere(f"{anywhere}/lock")
    with (
        pytest.raises(UserError, match="process 7 on elsewhere, which runs s"),
        locked(anywhere),
    ):
        pass


def renewed(path, before):
    """Waits for the renewal of a lock file, and returns its content."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        # It is not written at once.
        with contextlib.suppress(ValueError), files.open(path, "r") as file:
            content = json.load(file)
            if content != before:
                return content
    pytest.fail("not renewed")


@pytest.mark.slow
def test_a_job_that_died_elsewhere_is_taken_over(anywhere, quick):
    files.makedirs(anywhere)
    write_foreign_lock(f"{anywhere}/lock", 3)
    with locked(anywhere):
        with files.open(f"{anywhere}/lock", "r") as file:
            first = json.load(file)
        assert (first["pid"], first["renewed"]) == (os.getpid(), 1)
        assert renewed(f"{anywhere}/lock", first)["renewed"] > 1
    assert files.listdir(anywhere) == []


def test_a_job_whose_lock_was_taken_over_ends(
    anywhere, quick, monkeypatch, capfd
):
    files.makedirs(anywhere)
    ended = threading.Event()
    monkeypatch.setattr(locks.os, "_exit", lambda status: ended.set())
    with locked(anywhere):
        first = f"{anywhere}/lock"
        write_foreign_lock(first, 9)
        assert ended.wait(5)
        with files.open(first, "r") as file:
            assert json.load(file)["pid"] == 7
    assert "is in use by process 7 on elsewhere" in capfd.readouterr().err


@pytest.mark.parametrize("anywhere", WITHOUT_FLOCK, indirect=True)
def test_of_two_that_begin_at_once_one_gives_way(anywhere, a_job_elsewhere):
    a_job_elsewhere(f"{anywhere}/lock")
    with pytest.raises(UserError, match="process 7 on else"), locked(anywhere):
        pass
    # It is the other's.
    assert files.listdir(anywhere) == ["lock"]


def test_a_full_disk_does_not_end_the_renewals(tmp_path, quick, monkeypatch):
    with locked(tmp_path):
        original, failures = os.pwrite, []

        def pwrite(*arguments):
            if len(failures) < 2:
                failures.append(arguments)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return original(*arguments)

        monkeypatch.setattr(os, "pwrite", pwrite)
        before = json.loads((tmp_path / "lock").read_text())
        renewed(tmp_path / "lock", before)
        assert len(failures) == 2


def test_a_longer_record_of_a_job_that_has_ended_is_overwritten(tmp_path):
    ended = {"pid": 7, "host": socket.gethostname(), "since": "long ago " * 20}
    (tmp_path / "lock").write_text(json.dumps(ended))
    with locked(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("anywhere", WITHOUT_FLOCK, indirect=True)
def test_a_full_disk_without_flock_names_the_lock(anywhere, monkeypatch):
    class Full(io.BytesIO):
        def write(self, content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "open", lambda path, mode="rb": Full())
    with pytest.raises(OSError, match="No space") as error, locked(anywhere):
        pass
    assert error.value.filename == f"{anywhere}/lock"


@pytest.mark.parametrize("anywhere", WITHOUT_FLOCK, indirect=True)
def test_a_lock_file_that_was_cut_is_renewed(anywhere, quick, monkeypatch):
    files.makedirs(anywhere)
    ended = threading.Event()
    monkeypatch.setattr(locks.os, "_exit", lambda status: ended.set())
    with locked(anywhere):
        with files.open(f"{anywhere}/lock", "w") as file:
            file.write('{"pid": ')
        assert renewed(f"{anywhere}/lock", None)["pid"] == os.getpid()
    assert not ended.is_set()
