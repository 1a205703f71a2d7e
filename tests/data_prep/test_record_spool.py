import os
import random

import pytest

from data_prep.record_spool import RecordSpool


def entries(count, seed=1):
    rng = random.Random(seed)
    return [
        (rng.getrandbits(64), b"%d" % number * rng.randint(0, 9))
        for number in range(count)
    ]


@pytest.mark.parametrize("num_buckets", [1, 2, 3, 128])
def test_records_come_back_by_key_whatever_the_buckets(tmp_path, num_buckets):
    spool = RecordSpool(str(tmp_path), num_buckets)
    contents = [*entries(500), (0, b"first"), (2**64 - 1, b"last")]
    for key, data in contents:
        spool.add("train", key, data)
    spool.add("eval", 5, b"other")
    spool.flush()
    expected = [data for _, data in sorted(contents)]
    assert list(spool.records("train")) == expected
    assert list(spool.records("eval")) == [b"other"]
    assert spool.num_records == {"train": 502, "eval": 1}
    assert spool.num_bytes["train"] == sum(len(data) for _, data in contents)
    assert os.listdir(tmp_path) == []


def test_equal_keys_have_an_order_too(tmp_path):
    for data in ([b"a", b"b"], [b"b", b"a"]):
        spool = RecordSpool(str(tmp_path), 4)
        for record in data:
            spool.add("train", 7, record)
        spool.flush()
        assert list(spool.records("train")) == [b"a", b"b"]


def test_removing_takes_the_directory(tmp_path):
    directory = tmp_path / "spool"
    directory.mkdir()
    spool = RecordSpool(str(directory), 2)
    spool.add("train", 1, b"x")
    spool.flush()
    spool.remove()
    assert not directory.exists()
