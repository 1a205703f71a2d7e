import concurrent.futures
import errno
import json
import os
import resource
import shutil
from unittest import mock

import numpy as np
import pytest
from handmade_records import write_shards

from albert_tf.config import UserError
from albert_tf.io import object_stores
from albert_tf.io.json_files import write_json
from albert_tf.records import shards as shards_module
from albert_tf.records.shard_cache import ShardCache
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


def test_a_shard_that_cannot_be_read_is_named(directory, monkeypatch):
    fail = mock.Mock(side_effect=OSError(errno.EIO, "Input/output error"))
    with open_shards(directory, "train") as shards:
        monkeypatch.setattr(os, "pread", fail)
        with pytest.raises(OSError, match="Input/output error") as error:
            shards.read([10])
        assert shards.location(10) == f"{error.value.filename}, record 0"


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


def test_a_copy_that_was_cut_on_the_way_is_made_again(directory, monkeypatch):
    copied = []
    whole = shutil.copyfileobj

    def cut(source, target, length):
        whole(source, target, length)
        if source.name not in copied:
            target.seek(-3, os.SEEK_END)
            target.truncate()
        copied.append(source.name)

    monkeypatch.setattr("shutil.copyfileobj", cut)
    with open_shards(f"file://{directory}", "train") as shards:
        assert shards.read(range(25)) == numbered(25)
    assert len(copied) == 6


def sizes(directory):
    return [path.stat().st_size for path in sorted(directory.glob("train-*"))]


def test_copies_have_a_limit(directory, cache):
    """What does not fit is read from the bucket."""
    bucket, contents = f"file://{directory}", numbered(25)
    first, second, _ = sizes(directory)
    limits = {0: 0, first - 1: 0, first: 1, first + second: 2, 10**6: 3}
    for limit, count in [*limits.items(), (first, 1)]:
        with open_shards(bucket, "train", cache=ShardCache(limit)) as shards:
            order = np.random.default_rng(limit).permutation(25)
            assert shards.read(order) == [contents[n] for n in order]
        names = [name for name in copies(cache) if not name.endswith(".npy")]
        assert names == [shard_name("train", n, 3) for n in range(count)]


def test_a_copy_that_went_to_make_room_is_made_again(
    directory, cache, monkeypatch
):
    """Another process may remove it between its check and its opening."""
    verified = shards_module._spans

    def removing(path, copy, shard):
        found = verified(path, copy, shard)
        os.remove(copy.path)
        return found

    monkeypatch.setattr(shards_module, "_spans", removing)
    with open_shards(f"file://{directory}", "train") as shards:
        assert shards.read(range(25)) == numbered(25)


def test_the_places_of_records_are_found_once(directory, monkeypatch):
    bucket = f"file://{directory}"
    open_shards(bucket, "train", cache=ShardCache(0)).close()
    monkeypatch.setattr("shutil.copyfileobj", lambda *_: 1 / 0)
    with open_shards(bucket, "train", cache=ShardCache(0)) as shards:
        assert shards.read([24, 3]) == [numbered(25)[n] for n in (24, 3)]


def test_the_oldest_copies_make_room(directory, cache, tmp_path):
    for name in ("old", "older"):
        (cache / name).mkdir(parents=True)
        (cache / name / "shard").write_bytes(bytes(100))
    os.utime(cache / "older", (0, 0))
    total = sum(sizes(directory))
    for limit, kept in ((total + 150, "old"), (total, None)):
        open_shards(f"file://{directory}", "train", cache=ShardCache(limit))
        left = {path.name for path in cache.iterdir()} & {"old", "older"}
        assert left == ({kept} if kept else set())
        assert len(copies(cache / shards_of(cache))) == 3


def shards_of(cache):
    """The directory of the only set that was opened."""
    (name,) = {path.name for path in cache.iterdir()} - {"old", "older"}
    return name


def test_a_record_that_changed_in_the_bucket_is_an_error(directory):
    shards = open_shards(f"file://{directory}", "train", cache=ShardCache(0))
    damage_flipped(directory / shard_name("train", 0, 3))
    with pytest.raises(OSError, match="another checksum") as error:
        shards.read(range(25))
    assert error.value.filename.endswith("train-00000-of-00003.tfrecord")


def test_what_reading_a_bucket_needs_is_missed_at_once(directory, monkeypatch):
    def missing(*_, **__):
        raise ImportError("Install gcsfs")

    monkeypatch.setattr("fsspec.filesystem", missing)
    object_stores._file_system.cache_clear()
    bucket = f"file://{directory}"
    open_shards(bucket, "train").close()
    with pytest.raises(OSError, match="Install gcsfs"):
        open_shards(bucket, "train", cache=ShardCache(0))


def test_what_a_kill_has_left_of_a_copy_is_removed(directory, cache):
    bucket = f"file://{directory}"
    open_shards(bucket, "train").close()
    (copies_of,) = cache.iterdir()
    for name in ("new.tmp-1", "old.tmp-1"):
        (copies_of / name).touch()
    os.utime(copies_of / "old.tmp-1", (0, 0))
    open_shards(bucket, "train").close()
    assert {"new.tmp-1", "old.tmp-1"} & {*copies(cache)} == {"new.tmp-1"}
