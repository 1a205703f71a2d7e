"""Files on disk and behind a scheme behave alike.

`file://` stands for a bucket: it goes the same way through TensorFlow.
(TensorFlow's `ram://` appends to a file that is opened for writing.)
"""

import errno
import os

import pytest

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


def test_where_nothing_can_be_written_the_file_is_named(tmp_path):
    path = tmp_path / "no" / "a.json"
    with pytest.raises(FileNotFoundError) as error:
        files.write(path, b"content")
    assert error.value.filename == str(path)


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
        with files.local_directory(target, last="a") as local:
            assert not files.is_remote(local)
            os.makedirs(f"{local}/inner/most", exist_ok=True)
            fill(local, a=number, b=b"", **{"inner/most/c": number * 3_000_000})
    write(f"{target}/other", b"stays")
    with files.local_directory(f"{target}/", last="a") as local:
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
        with files.local_directory(bucket, last="b") as local:
            fill(local, a=number, b=number, c=number)
    assert moves == [
        ("remove", "b"),
        ("replace", "a"),
        ("replace", "c"),
        ("replace", "b"),
    ]
    assert below(tmp_path) == {"a": b"2", "b": b"2", "c": b"2"}


def test_what_is_replaced_in_a_bucket_goes_when_all_is_there(tmp_path, moves):
    bucket = f"file://{tmp_path}"
    os.mkdir(tmp_path / "deep")
    fill(tmp_path, a=b"1", b=b"1", mine=b"1")
    fill(tmp_path, **{"deep/z": b"1", "c.tmp-7": b"half"})
    with files.local_directory(
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
        files.local_directory(bucket, last="a", replaces={"b"}) as local,
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
        files.local_directory(bucket, last="b", replaces={"a"}) as local,
    ):
        fill(local, a=b"2", b=b"2")
    monkeypatch.undo()
    assert below(tmp_path) == {"a": b"1", "b": b"1"}


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


def test_an_unknown_scheme_is_an_error_of_the_system():
    with pytest.raises(OSError, match="'nosuch' not implemented") as error:
        files.exists("nosuch://a/b")
    assert error.value.errno == errno.EOPNOTSUPP
