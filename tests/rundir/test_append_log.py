"""Logs survive full disks, in whole entries."""

import errno
import os

import pytest
from pretraining_runs import events

from albert_tf.io import files
from albert_tf.rundir import append_log
from albert_tf.rundir.append_log import AppendLog
from albert_tf.rundir.monitor import Monitor


@pytest.fixture
def disk(monkeypatch):
    """A disk with `room` bytes left, which writing takes up."""

    class Disk:
        room = 10**9

    real = os.write

    def write(descriptor, data):
        if not Disk.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        number = real(descriptor, bytes(data[: Disk.room]))
        Disk.room -= number
        return number

    monkeypatch.setattr(append_log.os, "write", write)
    return Disk


def test_entries_are_retried_on_a_full_disk(tmp_path, disk):
    path, printed = tmp_path / "deep" / "log", []
    log = AppendLog(str(path), printed.append)
    log.append(b"one\n")
    disk.room = 2
    log.append(b"two\n")
    log.append(b"three\n")
    log.sync()
    # No partial entry, and logged once.
    assert path.read_bytes() == b"one\n"
    assert len(printed) == 1
    assert f"{path} cannot be written: No space left on device." in printed[0]
    disk.room = 1000
    log.append(b"four\n")
    assert path.read_bytes() == b"one\ntwo\nthree\nfour\n"
    assert printed[1:] == [f"{path} can be written again."]
    assert len(printed) == 2
    disk.room = 0
    log.append(b"five\n")
    log.append(b"six\n")
    log.close()
    assert "its last 2 entries are lost" in printed[-1]


def test_a_file_that_cannot_be_created_is_retried(tmp_path):
    directory, printed = tmp_path / "directory", []
    directory.write_text("in the way")
    log = AppendLog(str(directory / "log"), printed.append)
    log.append(b"one\n")
    assert "cannot be written" in printed[0]
    directory.unlink()
    log.append(b"two\n")
    log.close()
    assert (directory / "log").read_bytes() == b"one\ntwo\n"


def test_a_bucket_is_written_at_sync(tmp_path):
    path = f"file://{tmp_path}/deep/log"
    for entry in (b"one\n", b"two\n"):
        log = AppendLog(path, pytest.fail)
        log.append(entry)
        assert not files.exists(path) or entry not in files.open(path).read()
        log.sync()
        assert entry in files.open(path).read()
        log.append(b"last\n")
        log.close()
    assert files.open(path).read() == b"one\nlast\ntwo\nlast\n"


def test_the_logs_survive_a_full_disk(tmp_path, disk, capsys):
    monitor = Monitor(str(tmp_path), num_steps=9, start_step=0)
    for step, room in ((1, 10**6), (2, 40), (3, 0), (4, 10**6)):
        disk.room = room
        monitor.log_training(step, {"loss": float(step)}, {})
        monitor.flush()
    monitor.close()
    steps = [
        line.split(",")[0]
        for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]
    assert steps == [f'{{"step": {n}' for n in (1, 2, 3, 4)]
    points = events(tmp_path, "train").Tensors("loss/loss")
    assert [point.step for point in points] == [1, 2, 3, 4]
    printed = capsys.readouterr().out
    assert printed.count("cannot be written") == 3
    assert printed.count("can be written again.") == 3
