"""Files on disk and behind a scheme behave alike.

`file://` stands for a bucket: it goes the same way through TensorFlow.
(TensorFlow's `ram://` appends to a file that is opened for writing.)
"""

import errno
import os
import stat

import pytest
import tensorflow as tf

from albert_tf.config import UserError
from albert_tf.io import files


@pytest.fixture(params=["disk", "bucket"])
def directory(request, tmp_path):
    path = f"file://{tmp_path}" if request.param == "bucket" else str(tmp_path)
    files.makedirs(path)
    return path


def write(path, content):
    with files.open(path, "wb") as file:
        file.write(content)


def read(path):
    with files.open(path) as file:
        return file.read()


def test_a_scheme_is_what_makes_a_path_remote():
    assert all(map(files.is_remote, ("gs://bucket/run", "s3://bucket")))
    local = ("/gs://bucket", "run", "gs:/bucket", "C://x")
    assert not any(map(files.is_remote, local))


def test_bytes_and_text_come_back(directory):
    path = f"{directory}/a"
    content = bytes(range(256)) * 9000
    write(path, content)
    assert read(path) == content
    assert files.size(path) == len(content)
    with files.open(path) as file:
        assert file.read(3) == b"\0\1\2"
        assert file.seek(256 * 8999) == file.tell() == 256 * 8999
        assert file.read() == bytes(range(256))
        assert file.read(1) == b""
    with files.open(path, "w") as file:
        file.write("straße\n")
    assert read(path) == "straße\n".encode()
    with files.open(path, "r") as file:
        assert list(file) == ["straße\n"]
    with files.open(path, "ab") as file:
        file.write(b"more")
    assert read(path) == "straße\nmore".encode()


def test_directories(directory):
    assert files.sizes(f"{directory}/x") == {}
    files.remove_tree(f"{directory}/x")
    files.makedirs(f"{directory}/x/y")
    files.makedirs(f"{directory}/x/y")
    write(f"{directory}/x/b", b"12")
    write(f"{directory}/x/a", b"")
    sizes = list(files.sizes(f"{directory}/x").items())
    assert sizes == [("a", 0), ("b", 2)]
    assert files.listdir(f"{directory}/x") == ["a", "b", "y"]
    for name, kinds in {
        "x": (True, True, False),
        "x/a": (True, False, True),
        "z": (False, False, False),
    }.items():
        path = f"{directory}/{name}"
        found = files.exists(path), files.isdir(path), files.isfile(path)
        assert found == kinds, name
    files.remove(f"{directory}/x/a")
    assert files.listdir(f"{directory}/x") == ["b", "y"]
    files.remove_tree(f"{directory}/x")
    assert not files.exists(f"{directory}/x")


def test_a_file_that_is_replaced_is_whole_or_as_before(directory):
    path = f"{directory}/a"
    with files.replacing(path) as file:
        file.write(b"first")
        (name,) = files.listdir(directory)
        assert files.unfinished(name) == "a"
        assert not files.exists(path)
    with pytest.raises(RuntimeError), files.replacing(path) as file:
        file.write(b"sec")
        raise RuntimeError
    assert files.listdir(directory) == ["a"]
    assert files.unfinished("a") == files.unfinished("a.tmp-x") == ""
    assert read(path) == b"first"
    files.makedirs(f"{directory}/b")
    with pytest.raises(OSError, match="irectory"):
        files.write(f"{directory}/b", b"not renamed")
    assert files.listdir(directory) == ["a", "b"]


def test_a_file_is_whole_before_it_gets_its_name(directory, monkeypatch):
    original, sizes = files.replace, []

    def replace(source, target):
        sizes.append(files.size(source))
        original(source, target)

    monkeypatch.setattr(files, "replace", replace)
    files.write(f"{directory}/a", b"content")
    assert sizes == [7]


def test_where_nothing_can_be_written_the_file_is_named(tmp_path):
    path = tmp_path / "no" / "a.json"
    with pytest.raises(FileNotFoundError) as error:
        files.write(path, b"content")
    assert error.value.filename == str(path)


def test_a_full_disk_is_known_whoever_reports_it(tmp_path):
    path = tmp_path / "model"
    number, text = errno.ENOSPC, os.strerror(errno.ENOSPC)
    for error in (
        OSError(number, text),
        OSError(number, text, f"{path}.tmp-1"),
        tf.errors.ResourceExhaustedError(None, None, f"{path}.tmp-1/a; {text}"),
    ):
        assert files.is_disk_full(error)
        with (
            pytest.raises(OSError, match=text) as raised,
            files.naming(path, f"{path}.tmp-1"),
        ):
            raise error
        assert raised.value.errno == number
        assert raised.value.filename == str(path)
    memory = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")
    assert not files.is_disk_full(memory)
    with pytest.raises(type(memory)), files.naming(path, "b"):
        raise memory
    with pytest.raises(UserError) as wrapped:
        try:
            raise OSError(number, text)
        except OSError:
            raise UserError("a cannot be written.") from None
    assert files.is_disk_full(wrapped.value)
    assert not files.is_disk_full(UserError("a"))


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EFBIG])
def test_a_users_limits_count_as_a_full_disk(number):
    # The limits of all files, and of one (ulimit -f).
    assert files.is_disk_full(OSError(number, os.strerror(number)))


def test_what_is_replaced_on_disk_is_flushed_first(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor):
        calls.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def recorded_replace(source, target):
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    with files.replacing(tmp_path / "a") as file:
        file.write(b"1")
    temporary, *rest = calls
    assert temporary.startswith(f"{tmp_path}/a.tmp-")
    assert rest == ["replace", str(tmp_path)]


@pytest.mark.parametrize(
    "act",
    [
        files.open,
        files.size,
        files.listdir,
        files.remove,
        lambda path: files.replace(path, f"{path}2"),
    ],
)
def test_what_is_missing_is_the_same_error_everywhere(directory, act):
    with pytest.raises(FileNotFoundError):
        act(f"{directory}/nowhere")


def test_remote_paths_need_no_directory_for_temporary_files(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    files._tensorflow.cache_clear()
    assert files.isdir(f"file://{tmp_path}")


def test_an_unknown_scheme_is_an_error_of_the_system():
    with pytest.raises(OSError, match="Protocol not known: nosuch") as error:
        files.exists("nosuch://a/b")
    assert error.value.errno == errno.EOPNOTSUPP


def test_a_pipe_is_written_to_and_stays(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with files.replacing(path) as file:
        file.write(b"a")
    assert os.read(reader, 9) == b"a"
    os.close(reader)
    assert os.listdir(tmp_path) == ["pipe"]
    assert stat.S_ISFIFO(os.stat(path).st_mode)


def test_a_full_device_is_named():
    with pytest.raises(OSError) as error, files.replacing("/dev/full") as file:
        file.write(b"a")
    assert (error.value.errno, error.value.filename) == (
        errno.ENOSPC,
        "/dev/full",
    )
