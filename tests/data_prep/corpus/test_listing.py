import os
import shutil
from pathlib import Path

import pytest
from reading_helpers import write
from saved_data_sets import save

from albert_tf.config import UserError
from data_prep.corpus.listing import (
    describe_left_out,
    list_files,
    texts_among,
)


def test_files_directories_and_globs_are_listed_once_and_sorted(
    tmp_path, monkeypatch
):
    b = write(tmp_path / "b.txt", "b")
    a = write(tmp_path / "deep" / "er" / "a.md", "a")
    c = write(tmp_path / "c.text", "c")
    write(tmp_path / "deep" / "table.csv", "not text")
    assert list_files([str(tmp_path)]) == [b, a]
    assert list_files([c, str(tmp_path), b]) == [b, c, a]
    assert list_files([f"{tmp_path}/*.t*xt"]) == [b, c]
    assert list_files([f"{tmp_path}/**/*.md"]) == [a]
    assert list_files([f"{tmp_path}/deep/../b.txt", b]) == [b]
    monkeypatch.chdir(tmp_path)
    assert list_files([b, "b.txt"]) == [b]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.txt", "missing.txt' does not exist"),
        ("*.md", r"\*.md' holds no text"),
        ("folder", "folder' holds no text"),
        ("pipe.txt", r"pipe\.txt' is no regular file"),
    ],
)
def test_an_input_without_text_is_named(tmp_path, name, message):
    a = write(tmp_path / "a.txt", "a")
    write(tmp_path / "folder" / "table.csv", "a")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "folder.txt").mkdir()
    # A pipe in a directory is never opened: it would block.
    assert list_files([str(tmp_path)]) == list_files([f"{tmp_path}/*.txt"])
    with pytest.raises(UserError, match=message):
        list_files([a, str(tmp_path / name)])


def test_what_is_left_out_is_counted_by_kind(tmp_path):
    a = write(tmp_path / "a.txt", "a")
    named = write(tmp_path / "deep/table.csv", "read, since it is named")
    for name in ("b.PDF", "deep/c.pdf", "d.html.gz", "README", ".e/f.pdf"):
        write(tmp_path / name, "a")
    left_out = set()
    assert list_files([str(tmp_path), named], left_out) == [a, named]
    assert describe_left_out(left_out) == (
        "Files that are not read: 2 .pdf, 1 without a suffix, 1 .html.gz"
    )
    many = [f"a.{number}" for number in range(10)]
    assert describe_left_out([*many, "b.7"]).endswith(
        ": 2 .7, 1 .0, 1 .1, 1 .2, 1 .3, 1 .4, 1 .5, 1 .6, 2 of other kinds"
    )
    (tmp_path / "deep/c.pdf").unlink()
    message = r"no text\. Files that are not read: 1 \.csv\. A file, a direct"
    with pytest.raises(UserError, match=message):
        list_files([str(tmp_path / "deep")])


def test_names_that_are_taken_from_directories():
    taken = ["a.TXT", "x.y/A.JSONL.GZ", "/b.md"]
    others = ["a.gz", "a", "a.csv", "a.arrow"]
    left_out = set()
    assert sorted(texts_among(taken + others, left_out)) == sorted(taken)
    assert left_out == set(others)


@pytest.fixture
def splits(tmp_path):
    """The directory of a DatasetDict beside a text."""
    write(tmp_path / "a.txt", "a")
    names = ["train", "unsupervised", "testimony", "Test", "validation_2"]
    for name in names:
        save(tmp_path / "saved" / name, {"text": ["a", "b"]})
    write(tmp_path / "saved/dataset_dict.json", '{"splits": []}')
    # Left by `Dataset.map`.
    write(tmp_path / "saved/train/cache-0123.arrow", "")
    return tmp_path


def listed(directory, left_out):
    """Returns the names of the files in a directory."""
    paths = list_files([str(directory)], left_out)
    assert paths == sorted(paths)
    return [os.path.relpath(path, directory) for path in paths]


def rows(*folders):
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    return [os.path.join(f, name) for f in folders for name in names]


def test_saved_data_sets_are_read_without_splits_to_evaluate_on(splits):
    left_out = set()
    names = ["saved/testimony", "saved/train", "saved/unsupervised"]
    assert listed(splits, left_out) == ["a.txt", *rows(*names)]
    assert describe_left_out(left_out) == (
        "Files that are not read: 2 .arrow in Test, 2 .arrow in validation_2"
    )


def test_a_split_that_is_named_is_read(splits):
    left_out = set()
    assert listed(splits / "saved" / "Test", left_out) == rows("")
    assert not left_out
    for name in ("train", "unsupervised", "testimony"):
        shutil.rmtree(splits / "saved" / name)
    message = r"holds no text\. Files that are not read: 2 \.arrow in Test, 2 "
    with pytest.raises(UserError, match=message):
        list_files([str(splits / "saved")])


def test_a_data_set_that_is_no_split_has_any_name(tmp_path):
    save(tmp_path / "test", {"text": ["a", "b"]})
    assert listed(tmp_path, set()) == rows("test")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"_data_files": []}, "state.json: expected names of files as"),
        ({"_indices_files": [{"filename": "a"}]}, "flatten_indices"),
        ({"_data_files": [{"filename": "a.arrow"}]}, "a.arrow is missing"),
    ],
)
def test_a_data_set_that_is_not_whole(tmp_path, state, message):
    save(tmp_path / "a", {"text": ["a", "b"]}, **state)
    with pytest.raises(UserError, match=message):
        list_files([str(tmp_path)])


def test_a_directory_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    write(tmp_path / "closed" / "b.txt", "b")
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match="closed: Permission denied"):
        list_files([str(tmp_path)])


def test_hidden_names_are_taken_if_they_are_named(tmp_path):
    a = write(tmp_path / ".corpus" / "a.txt", "a")
    hidden = write(tmp_path / ".corpus" / ".b.txt", "b")
    write(tmp_path / ".corpus" / "deep" / ".cache" / "er" / "d.txt", "d")
    assert list_files([str(tmp_path / ".corpus")]) == [a]
    assert list_files([hidden]) == [hidden]


def test_linked_directories_are_followed_once(tmp_path):
    write(tmp_path / "store" / "a.txt", "a")
    inside = write(tmp_path / "corpus" / "deep" / "b.txt", "b")
    folder = tmp_path / "corpus"
    for name in ("y", "x", "z"):
        (folder / name).symlink_to(tmp_path / "store")
    (folder / "alias").symlink_to(folder / "deep")
    (folder / "deep" / "up").symlink_to(folder)
    (folder / "deep" / "here").symlink_to(".")
    (tmp_path / "store" / "itself").symlink_to("itself")
    (tmp_path / "store" / "back").symlink_to(folder / "deep")
    assert list_files([str(folder)]) == [
        str(folder / "alias" / "b.txt"),
        str(folder / "x" / "a.txt"),
    ]
    assert os.path.samefile(inside, folder / "alias" / "b.txt")


def test_a_linked_file_is_read_once_by_its_first_path(tmp_path):
    b = write(tmp_path / "b.txt", "b")
    a, c = tmp_path / "a.txt", tmp_path / "c.md"
    a.symlink_to(b)
    c.symlink_to(b)
    assert list_files([str(tmp_path)]) == [str(a)]
    for inputs in ([b, str(c)], [str(c), b]):
        assert list_files(inputs) == [b]
    assert list_files([f"{tmp_path}/*"]) == [str(a)]


def test_a_path_through_a_link_and_up_is_kept(tmp_path):
    """A link's parent is not the directory that the link is in."""
    write(tmp_path / "a.txt", "wrong")
    write(tmp_path / "store" / "a.txt", "right")
    (tmp_path / "store" / "deep").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store" / "deep")
    (path,) = list_files([str(tmp_path / "link" / ".." / "a.txt")])
    assert Path(path).read_text() == "right"


def test_a_dangling_link_is_named(tmp_path):
    write(tmp_path / "a.txt", "a")
    (tmp_path / "b.csv").symlink_to("gone")
    list_files([str(tmp_path)])
    (tmp_path / "c.txt").symlink_to("gone")
    for inputs in (str(tmp_path), f"{tmp_path}/*.txt"):
        with pytest.raises(UserError, match=r"c\.txt is a link to a missing"):
            list_files([inputs])


@pytest.mark.parametrize("name", [b"caf\xe9.txt", b"caf\xe9/a.txt"])
def test_a_name_that_is_not_utf8_is_refused(tmp_path, name, monkeypatch):
    path = os.path.join(os.fsencode(tmp_path), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"text")
    monkeypatch.chdir(os.path.dirname(path))
    message = r"name '/.*caf\\udce9.*' is not UTF-8; rename it\.$"
    for inputs in (str(tmp_path), os.path.basename(os.fsdecode(path))):
        with pytest.raises(UserError, match=message) as error:
            list_files([inputs])
        str(error.value).encode()
