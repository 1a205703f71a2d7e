import io
import json

import pytest

from albert_tf.config import UserError
from data_prep.pretraining.storage import LocalStorage, read_json, write_json


def test_what_is_written_is_read(tmp_path):
    path = str(tmp_path / "new" / "plan.json")
    value = {"a": [1, 2.5, None], "é": {"b": True}}
    write_json(LocalStorage(), path, value)
    assert read_json(LocalStorage(), path) == value


def test_a_large_file_of_a_build_is_read(tmp_path):
    """Above what is allowed of JSON that users bring."""
    path = str(tmp_path / "metadata.json")
    value = {f"train-{n:05}": "x" * 50 for n in range(20_000)}
    write_json(LocalStorage(), path, value)
    assert read_json(LocalStorage(), path) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b'"text"',
        b'{"settings": {"seed"',
        b'{"a": 1} {}',
        b'{"a": "\xff"}',
        bytes(100),
        b"[" * 100_000,
    ],
    ids=range(9),
)
def test_damaged_json_is_told_in_one_line(tmp_path, data):
    path = tmp_path / "metadata.json"
    path.write_bytes(data)
    with pytest.raises(UserError) as error:
        read_json(LocalStorage(), str(path))
    assert str(error.value) == (
        f"{path} is damaged: it is not a JSON object; remove the output "
        "directory or choose another."
    )


def test_json_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match="none.json: No such file or directory"):
        read_json(LocalStorage(), str(tmp_path / "none.json"))
    with pytest.raises(UserError, match=f"{tmp_path.name}: Is a directory"):
        read_json(LocalStorage(), str(tmp_path))

    class Remote(LocalStorage):
        def open_file(self, path, mode="rb"):
            raise OSError("not\n  reached")

    with pytest.raises(UserError, match="^far/plan.json: not reached\\.$"):
        read_json(Remote(), "far/plan.json")


# --------------------------------------------------------- of Apache Beam


@pytest.fixture
def remote_files(monkeypatch):
    """The names of a file system where `**` is all below a directory."""
    pytest.importorskip("apache_beam")
    from data_prep.pretraining import beam_storage

    names = []

    class Metadata:
        def __init__(self, path):
            self.path = path

    class Result:
        def __init__(self, metadata_list):
            self.metadata_list = metadata_list

    class Files:
        @staticmethod
        def match(patterns):
            (pattern,) = patterns
            folder = pattern.removesuffix("**")
            found = [
                name
                for name in names
                if name == pattern
                or (folder != pattern and name.startswith(folder))
            ]
            return [Result([Metadata(name) for name in found])]

        @staticmethod
        def open(path, **_):
            return io.BytesIO(json.dumps([path]).encode())

    monkeypatch.setattr(beam_storage, "FileSystems", Files)
    return names


def test_names_in_remote_directories_are_taken_as_in_local_ones(remote_files):
    from data_prep.pretraining import beam_storage

    folder = "far://store/.hidden/corpus"
    taken = [f"{folder}/B.TXT.GZ", f"{folder}/deep/a.md"]
    left = [".a.txt", ".git/a.txt", "deep/.b/c/a.txt", "a.csv", "b", "c.gz"]
    remote_files += [*taken, *(f"{folder}/{name}" for name in left)]
    storage = beam_storage.RemoteStorage()
    assert storage.list_files([folder]) == taken
    assert storage.list_files([f"{folder}/"]) == taken
    assert storage.list_files([f"{folder}/.a.txt"]) == [f"{folder}/.a.txt"]
    with pytest.raises(UserError, match="holds no text"):
        storage.list_files([f"{folder}/deep/.b/c/d"])


def test_damaged_remote_json_is_told_of(remote_files):
    from data_prep.pretraining import beam_storage

    with pytest.raises(UserError, match="far://out/plan.json is damaged"):
        read_json(beam_storage.RemoteStorage(), "far://out/plan.json")
