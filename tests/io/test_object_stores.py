"""Object stores; fsspec's `memory://`, which TensorFlow has not, is one."""

import errno
import itertools

import fsspec
import pytest

from albert_tf.io import files, object_stores


@pytest.fixture
def bucket():
    store = fsspec.filesystem("memory")
    store.pipe({"/bucket/a": b"0123456789", "/bucket/sub/b": b"b"})
    yield "memory://bucket"
    store.rm("/bucket", recursive=True)


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """Three further tries at once."""
    monkeypatch.setattr(object_stores, "RETRY_SECONDS", (0.0,) * 3)


def test_what_tensorflow_cannot_reach_is_read(bucket):
    assert files.listdir(bucket) == ["a", "sub"]
    assert files.sizes(bucket) == {"a": 10}
    assert files.isdir(f"{bucket}/sub")
    assert files.isfile(f"{bucket}/a")
    assert not files.exists(f"{bucket}/b")
    with files.open(f"{bucket}/a") as file:
        file.seek(7)
        assert file.read() == b"789"
    with pytest.raises(FileNotFoundError) as error:
        files.open(f"{bucket}/b")
    assert error.value.filename == f"{bucket}/b"


@pytest.mark.parametrize(
    "write",
    [
        lambda path: files.write(path, b""),
        files.remove,
        files.remove_tree,
        files.makedirs,
    ],
)
def test_it_is_not_written(bucket, write):
    with pytest.raises(OSError, match="only read") as error:
        write(f"{bucket}/a")
    assert error.value.errno == errno.EOPNOTSUPP
    assert files.sizes(bucket) == {"a": 10}


def test_a_package_that_is_missing_is_named(monkeypatch):
    def missing(*_, **__):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "filesystem", missing)
    object_stores._file_system.cache_clear()
    with pytest.raises(OSError, match=r"Install s3fs .*buckets\.txt"):
        files.exists("s3://bucket/a")


@pytest.fixture
def answers(monkeypatch):
    """The answers to each request for ranges, in place of the store's."""
    script: list = []
    asked: list = []

    class Store:
        def cat_ranges(self, paths, starts, ends, **_):
            asked.append([*zip(paths, starts, ends, strict=True)])
            return script.pop(0)

    monkeypatch.setattr(object_stores, "_file_system", lambda _: Store())
    return script, asked


RANGES = ["s://b/x", "s://b/y", "s://b/z"], [0, 5, 2], [2, 7, 4]


def test_ranges_that_fail_or_are_cut_are_read_again(answers, capsys):
    script, asked = answers
    script += [[b"01", b"5", TimeoutError("slow\nanswer")], [b"56", b"23"]]
    assert object_stores.read_ranges(*RANGES) == [b"01", b"56", b"23"]
    assert asked[1] == [("s://b/y", 5, 7), ("s://b/z", 2, 4)]
    assert capsys.readouterr().err == (
        "s://b/z: slow answer; trying again in 0 s\n"
    )


def test_ranges_that_stay_cut_are_an_error(answers):
    script, asked = answers
    script += [[b"01", b"56", b"2"], [b"2"], [b"2"], [b"2"]]
    with pytest.raises(OSError, match="1 of 2 bytes came") as error:
        object_stores.read_ranges(*RANGES)
    assert error.value.filename == "s://b/z"
    assert len(asked) == 4


@pytest.mark.parametrize(
    "error", [FileNotFoundError(), PermissionError(), OSError(errno.ENOSPC, "")]
)
def test_what_no_further_try_changes_is_raised_at_once(error):
    calls = itertools.count()

    def fail():
        next(calls)
        with object_stores.os_errors("s://b/x"):
            raise error

    with pytest.raises(OSError, match="s://b/x"):
        object_stores.retrying(fail)
    assert next(calls) == 1
