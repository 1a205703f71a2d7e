"""Directories appear whole, and what killed processes have left goes.

`file://` stands for a bucket: it goes the same way through TensorFlow.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from albert_tf.config import UserError
from albert_tf.io import directories, files, locks

WRITER = """
import sys, time
from albert_tf.io import directories
path = sys.argv[1]
arguments = {"last": "a"} if "://" in path else {}
kind = "local_directory" if arguments else "new_directory"
with getattr(directories, kind)(path, **arguments) as directory:
    open(f"{directory}/a", "w").close()
    print(directory, flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=["disk", "bucket"])
def directory(request, tmp_path):
    return f"file://{tmp_path}" if request.param == "bucket" else str(tmp_path)


def write(path, content):
    with files.open(path, "wb") as file:
        file.write(content)


@pytest.fixture
def writer():
    """Returns a process that writes to a path, and its directory."""
    processes = []

    def start(path):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, path],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        processes.append(process)
        return process, process.stdout.readline().rstrip("\n")

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_what_a_killed_process_has_left_goes(tmp_path, writer):
    path = str(tmp_path / "vocab")
    process, left = writer(path)
    process.kill()
    process.wait()
    # Two directories have no lock: one of an earlier version, and somebody's.
    for name in ("vocab.writing-0123456789ab", "vocab.writing-notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "vocab.writing-ba9876543210.lock").touch()
    assert os.path.basename(left) in os.listdir(tmp_path)
    with directories.new_directory(path) as new:
        os.rename(new, path)
    assert sorted(os.listdir(tmp_path)) == ["vocab", "vocab.writing-notes"]


def test_a_second_writer_is_refused_and_the_first_undisturbed(tmp_path, writer):
    path = str(tmp_path / "vocab")
    process, first = writer(path)
    with (
        pytest.raises(UserError) as error,
        directories.new_directory(path),
    ):
        pass
    assert str(error.value).startswith(
        f"{path} is in use by process {process.pid} on "
    )
    assert str(error.value).endswith(
        ". Wait until that has ended, or name another directory."
    )
    assert os.listdir(first) == ["a"]
    # Exports write versions of their own.
    with directories.new_directory(path, shared=True) as second:
        assert os.listdir(second) == []
    assert sorted(os.listdir(tmp_path)) == [
        os.path.basename(first),
        f"{os.path.basename(first)}.lock",
    ]


def test_a_second_writer_to_a_bucket_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_RENEWAL_SECONDS", 0.04)
    bucket = f"file://{tmp_path}/model"
    with directories.local_directory(bucket, last="a") as local:
        fill(local, a=b"1")
        with (
            pytest.raises(UserError) as error,
            directories.local_directory(f"{bucket}/", last="a"),
        ):
            pass
    assert f"{bucket} is in use by process {os.getpid()} on" in str(error.value)
    assert below(tmp_path) == {"model/a": b"1"}


def test_what_a_killed_upload_has_left_goes(tmp_path):
    fill(tmp_path, **{"a.tmp-7": b"half", "mine.tmp-7": b"half"})
    with directories.local_directory(f"file://{tmp_path}", last="a") as local:
        fill(local, a=b"1")
    assert below(tmp_path) == {"a": b"1", "mine.tmp-7": b"half"}


def below(directory):
    """Returns the content of every file below a directory on disk, by name."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def fill(directory, **contents):
    for name, content in contents.items():
        write(os.path.join(directory, name), content)


def test_what_is_written_to_a_local_directory_arrives(directory, tmp_path):
    target = f"{directory}/deep/model"
    for number in (b"1", b"2"):
        with directories.local_directory(target, last="a") as local:
            assert not files.is_remote(local)
            os.makedirs(f"{local}/inner/most", exist_ok=True)
            fill(local, a=number, b=b"", **{"inner/most/c": number * 3_000_000})
    write(f"{target}/other", b"stays")
    with directories.local_directory(f"{target}/", last="a") as local:
        fill(local, b=b"new")
    whole = {"b": b"new", "inner/most/c": b"2" * 3_000_000, "other": b"stays"}
    assert below(tmp_path / "deep/model").items() >= whole.items()


@pytest.fixture
def moves(monkeypatch):
    """What happens to names in a bucket, in its order."""
    seen = []
    for name in ("remove", "replace"):
        original = getattr(files, name)

        def recorded(*paths, name=name, original=original):
            seen.append((name, os.path.basename(paths[-1])))
            return original(*paths)

        monkeypatch.setattr(files, name, recorded)
    return seen


def test_no_half_of_a_directory_in_a_bucket_looks_whole(tmp_path, moves):
    bucket = f"file://{tmp_path}"
    for number in (b"1", b"2"):
        moves.clear()
        with directories.local_directory(bucket, last="b") as local:
            fill(local, a=number, b=number, c=number)
    assert moves == [
        ("remove", "b"),
        ("replace", "a"),
        ("replace", "c"),
        ("replace", "b"),
        ("remove", f"{tmp_path.name}.lock"),
    ]
    assert below(tmp_path) == {"a": b"2", "b": b"2", "c": b"2"}


def test_what_is_replaced_in_a_bucket_goes_when_all_is_there(tmp_path, moves):
    bucket = f"file://{tmp_path}"
    os.mkdir(tmp_path / "deep")
    fill(tmp_path, a=b"1", b=b"1", mine=b"1")
    fill(tmp_path, **{"deep/z": b"1", "c.tmp-7": b"half"})
    with directories.local_directory(
        bucket, last="a", replaces={"a", "b", "c", "deep"}
    ) as local:
        fill(local, a=b"2")
    assert below(tmp_path) == {"a": b"2", "mine": b"1"}
    assert moves[:2] == [("remove", "a"), ("replace", "a")]


def test_a_failure_changes_nothing_in_a_bucket(tmp_path, monkeypatch):
    bucket = f"file://{tmp_path}"
    fill(tmp_path, a=b"1", b=b"1")
    with (
        pytest.raises(ZeroDivisionError),
        directories.local_directory(bucket, last="a", replaces={"b"}) as local,
    ):
        fill(local, a=b"2")
        raise ZeroDivisionError
    original = files.open

    def broken(path, mode="rb"):
        if files.is_remote(path) and "/b" in path:
            raise OSError("no more room")
        return original(path, mode)

    monkeypatch.setattr(files, "open", broken)
    with (
        pytest.raises(OSError, match="no more room"),
        directories.local_directory(bucket, last="b", replaces={"a"}) as local,
    ):
        fill(local, a=b"2", b=b"2")
    monkeypatch.undo()
    assert below(tmp_path) == {"a": b"1", "b": b"1"}


def test_a_directory_made_for_a_failure_is_removed(tmp_path):
    (tmp_path / "old").mkdir()
    path = tmp_path / "old" / "new" / "deep"
    with pytest.raises(RuntimeError), directories.made_directory(path):
        assert path.is_dir()
        raise RuntimeError
    assert not os.listdir(tmp_path / "old")
    # What was there or was written before stays.
    with pytest.raises(RuntimeError), directories.made_directory(path):
        (path.parent / "written").touch()
        raise RuntimeError
    assert os.listdir(tmp_path / "old" / "new") == ["written"]
    (tmp_path / "empty").mkdir()
    for parent in (str(tmp_path), f"file://{tmp_path}"):
        with (
            pytest.raises(RuntimeError),
            directories.made_directory(f"{parent}/empty"),
        ):
            raise RuntimeError
    assert (tmp_path / "empty").is_dir()
    with directories.made_directory(path):
        pass
    assert path.is_dir()
