"""JSON is read strictly and within bounds, and written whole or not at all."""

import os

import pytest

from albert_tf.config import UserError
from albert_tf.io.json_files import (
    MAX_JSON_BYTES,
    read_at_most,
    read_json,
    read_json_list,
    write_json,
)
from tests.counted_work import steps_below


def test_json_round_trip(tmp_path):
    value = {"name": "naïve ▁ü", "list": [1, 2.5, None, True], "o": {}}
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    write_json(path, value)
    assert read_json(path) == value
    assert path.read_bytes().endswith(b"}\n")
    assert "▁" in path.read_text(encoding="utf-8")
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("value", [{"a": {1}}, {"a": float("nan")}])
def test_a_value_that_json_cannot_hold_leaves_the_old_file(tmp_path, value):
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    with pytest.raises((TypeError, ValueError)):
        write_json(path, value)
    assert read_json(path) == {"old": 1}
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'{"a": 1, "a": 2}', "not valid JSON: the key 'a' appears twice"),
        (b'{"a": NaN}', "not valid JSON: the number 'NaN' is not finite"),
        (b'{"b": {"a": [[0, -1e400]]}}', "the number '-1e400' is not fi"),
        (b"[1]", "is not a JSON object"),
        (b"", "is not valid JSON"),
        (b'{"a": "\xff"}', "is not valid JSON: 'utf-8' codec can't decode"),
        (b'{"a": ' + b"[" * 400_000 + b"]" * 400_000 + b"}", "nested too deep"),
        (b'{"%s": 1, "%s": 1}' % (2 * (b"a" * 9**5,)), "the key 'a{76}"),
        (b'{"a": ' + b"1" * 5000 + b"}", "is not valid JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "pointer of Git LFS"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_json_is_refused(tmp_path, content, text):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=text) as caught, steps_below(2000):
        read_json(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 250 + len(str(path))


def test_a_list_is_read_likewise(tmp_path):
    path = tmp_path / "list.json"
    write_json(path, ["a", 1])
    assert read_json_list(path) == ["a", 1]
    path.write_text('{"a": 1}')
    with pytest.raises(UserError, match=r"is not a JSON list\. Try again\.$"):
        read_json_list(path, advice="Try again.")
    path.write_text('[{"a": 1, "a": 2}]')
    with pytest.raises(UserError, match="the key 'a' appears twice"):
        read_json_list(path)


def test_a_file_that_hides_its_size_is_not_read_to_its_end(
    tmp_path, monkeypatch
):
    path = tmp_path / "growing.json"
    path.write_bytes(b" " * (MAX_JSON_BYTES + 9))
    monkeypatch.setattr("albert_tf.io.files.size", lambda path: 0)
    with pytest.raises(UserError, match="has 16777217 bytes; .* is refused"):
        read_json(path)


def test_what_is_no_small_file_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_at_most(path, 5) == b"12345"
    os.mkfifo(tmp_path / "pipe")
    os.symlink(tmp_path / "pipe", tmp_path / "link")
    huge = tmp_path / "huge"
    with open(huge, "wb") as file:
        file.truncate(10**11)
    for found, text in (
        (path, " has 5 bytes; more than 4 is refused"),
        (huge, " has 100000000000 bytes; more than 4 is refused"),
        (tmp_path, ": Is a directory"),
        (tmp_path / "none", ": No such file or directory"),
        (tmp_path / "link", " is a pipe or a device, not a file"),
        ("/dev/zero", " is a pipe or a device, not a file"),
    ):
        with pytest.raises(UserError, match=f"^{found}{text}"):
            read_at_most(found, 4)
