import concurrent.futures
import errno
import json
import os
import resource

import numpy as np
import pytest
from handmade_records import write_shards

from albert_tf.config import UserError
from albert_tf.io.json_files import write_json
from albert_tf.records.shards import (
    describe_tokenizer,
    id_ranges,
    ids_in_ranges,
    open_shards,
    read_metadata,
    shard_name,
)


def numbered(count, prefix=b"record"):
    """Records of many sizes, the empty one included."""
    return [prefix * (number % 7) + b"%d" % number for number in range(count)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The directory that shards of buckets are copied to."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "system"))
    return tmp_path / "system" / f"albert_tf-{os.getuid()}"


@pytest.fixture
def directory(tmp_path):
    """Two splits; train has the records 0 to 24 in three shards."""
    contents = numbered(25)
    train = [contents[:10], contents[10:11], contents[11:]]
    splits = {"train": train, "eval": [[b"", b"held out"]]}
    write_shards(tmp_path, splits, record_kind="dynamic")
    return tmp_path


def test_records_are_read_by_number(directory):
    contents = numbered(25)
    with open_shards(directory, "train") as shards:
        assert len(shards) == 25
        assert shards.metadata["record_kind"] == "dynamic"
        assert shards.read(range(25)) == contents
        order = [24, 0, 10, 10, 9, 11]
        assert shards.read(np.array(order)) == [contents[n] for n in order]
        assert shards.read([]) == []
    with open_shards(str(directory), "eval") as shards:
        assert shards.read([1, 0]) == [b"held out", b""]


def test_shards_may_be_empty(tmp_path):
    parts = [[], [b"0", b"1"], [], [], [b"2"], []]
    write_shards(tmp_path, {"train": parts, "eval": [[]]})
    with open_shards(tmp_path, "train") as shards:
        assert len(shards) == 3
        assert shards.read([2, 0, 1]) == [b"2", b"0", b"1"]
        assert [shards.location(n) for n in range(3)] == [
            f"{tmp_path}/train-00001-of-00006.tfrecord, record 0",
            f"{tmp_path}/train-00001-of-00006.tfrecord, record 1",
            f"{tmp_path}/train-00004-of-00006.tfrecord, record 0",
        ]
    with open_shards(tmp_path, "eval") as shards:
        assert len(shards) == 0
        assert shards.read([]) == []


def test_shards_may_be_many(tmp_path):
    """More than a process may have open, their entries more than 1 MB."""
    write_shards(tmp_path, {"train": [[b"%d" % n] for n in range(99)]})
    metadata = read_metadata(tmp_path)
    write_json(tmp_path / "metadata.json", metadata | {"filler": "a" * 2**20})
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 30, limits[1]))
    try:
        with open_shards(tmp_path, "train") as shards:
            assert shards.read([98, 0]) == [b"98", b"0"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_many_threads_read_the_same(directory):
    numbers = np.random.default_rng(1).permutation(np.repeat(range(25), 200))
    contents = numbered(25)
    with (
        open_shards(directory, "train") as shards,
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):
        found = pool.map(shards.read, numbers[:, None])
        assert list(found) == [[contents[n]] for n in numbers]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_glob_selects_shards_of_the_split(directory, scheme):
    path = f"{scheme}{directory}"
    pattern = f"{path}/train-0000[12]-of-00003.tfrecord"
    with open_shards(pattern, "train") as shards:
        assert shards.read(range(len(shards))) == numbered(25)[10:]
    with open_shards(f"{path}/*.tfrecord", "train") as shards:
        assert len(shards) == 25
    for pattern, split, text in (
        (f"{path}/train-*", "eval", "names no shard of the split 'eval'"),
        (path, "dev", "has no split 'dev'; it has eval, train"),
        (f"{path}/nowhere", "train", "nowhere is not a directory"),
    ):
        with pytest.raises(UserError, match=text):
            open_shards(pattern, split)
    (directory / "train-00009-of-00010.tfrecord").write_bytes(b"")
    with pytest.raises(UserError, match=r"00009-of-00010\.tfrecord is not"):
        open_shards(f"{path}/train-*", "train")
    open_shards(path, "train").close()


def test_a_glob_in_the_working_directory(directory, monkeypatch):
    monkeypatch.chdir(directory)
    with open_shards("train-*", "train") as shards:
        assert len(shards) == 25


def damage_missing(path):
    path.unlink()


def damage_cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def damage_flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_missing, "is missing"),
        (damage_cut, r"has \d+ bytes, metadata.json says \d+: it was cut"),
        (damage_flipped, "has sha256 .* its contents changed"),
    ],
)
def test_a_damaged_shard_is_named(directory, scheme, damage, message):
    name = "train-00002-of-00003.tfrecord"
    damage(directory / name)
    path = f"{scheme}{directory}"
    with pytest.raises(UserError, match=f"^{path}/{name} {message}"):
        open_shards(path, "train")
    # The other split is whole.
    open_shards(path, "eval").close()


def test_metadata_that_cannot_be_used(directory):
    metadata = read_metadata(directory)
    shard = metadata["splits"]["train"]["shards"][0]
    shard["name"] = "../other.tfrecord"
    write_json(directory / "metadata.json", metadata)
    with pytest.raises(UserError, match="expected a name within the directory"):
        open_shards(directory, "train")
    del shard["sha256"]
    write_json(directory / "metadata.json", metadata)
    with pytest.raises(UserError, match="does not name the shards .*'sha256'"):
        open_shards(directory, "train")
    write_json(directory / "metadata.json", {"format_version": 2})
    with pytest.raises(UserError, match="format_version=2; expected 1"):
        open_shards(directory, "train")
    (directory / "metadata.json").unlink()
    with pytest.raises(UserError, match=r"01\.tfrecord but no metadata.json,"):
        open_shards(directory, "train")
    (directory / ".work").mkdir()
    with pytest.raises(UserError, match="unfinished; run build_pretraining_da"):
        open_shards(directory, "train")


def test_a_directory_of_text_is_no_place_to_finish_a_build(tmp_path):
    for name, message in (
        ("books", r"books is not a directory of shards \(it is empty\)"),
        ("books/1.txt", r"shards \(it has 1\.txt\); make shards of text by"),
    ):
        path = tmp_path / name
        path.write_text("text") if path.suffix else path.mkdir()
        with pytest.raises(UserError, match=message) as error:
            open_shards(tmp_path / "books", "train")
        assert "finish" not in str(error.value)


@pytest.mark.parametrize(
    ("ids", "ranges"),
    [
        ([], []),
        ([7], [[7, 8]]),
        ([5, 6, 7, 9, 11, 12], [[5, 8], [9, 10], [11, 13]]),
    ],
)
def test_ids_travel_as_ranges(ids, ranges):
    assert id_ranges(np.array(ids, np.int32)) == ranges
    back = ids_in_ranges(ranges)
    assert back.tolist() == ids
    assert back.dtype == np.int32


def test_a_tokenizer_is_described_for_readers(tiny_tokenizer):
    description = json.loads(json.dumps(describe_tokenizer(tiny_tokenizer)))
    ranges = description.pop("replacement_id_ranges")
    np.testing.assert_array_equal(
        ids_in_ranges(ranges), tiny_tokenizer.replacement_ids
    )
    assert description.pop("fingerprint") == tiny_tokenizer.fingerprint
    assert description == {
        "vocab_size": 200,
        "pad_id": 0,
        "unk_id": 1,
        "cls_id": 2,
        "sep_id": 3,
        "mask_id": 4,
        "special_ids": [0, 1, 2, 3, 4],
    }


# Shards in a bucket; `file://` stands for one.


def copies(cache):
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def test_shards_in_a_bucket_are_copied_once(directory, cache):
    contents = numbered(25)
    with open_shards(directory, "train") as shards:
        fingerprint = shards.fingerprint
    bucket = f"file://{directory}"
    with open_shards(bucket, "train") as shards:
        assert shards.fingerprint == fingerprint
        assert shards.read(range(25)) == contents
        assert shards.location(12) == (
            f"{bucket}/train-00002-of-00003.tfrecord, record 1"
        )
    assert [path.name for path in cache.iterdir()] == [fingerprint]
    assert copies(cache) == [shard_name("train", n, 3) for n in range(3)]
    # The next time all is there, if only some of it is asked for.
    for path in directory.glob("train-*"):
        path.unlink()
    with open_shards(bucket, "train") as shards:
        assert shards.read(range(25)) == contents
    # A directory of the user's own.
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [damage_cut, damage_flipped])
def test_a_damaged_copy_is_made_anew(directory, cache, damage):
    bucket = f"file://{directory}"
    open_shards(bucket, "train").close()
    (copy,) = cache.rglob("train-00002*")
    damage(copy)
    with open_shards(bucket, "train") as shards:
        assert shards.read(range(25)) == numbered(25)


def test_copies_do_not_go_to_another_users_directory(directory, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: os.stat(directory).st_uid + 1)
    with pytest.raises(UserError, match="is another user's; set TMPDIR"):
        open_shards(f"file://{directory}", "train")


def test_a_full_disk_is_named_where_copies_go(directory, cache, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(UserError, match="cannot be copied to .*: No space"):
        open_shards(f"file://{directory}", "train")
    assert copies(cache) == []
