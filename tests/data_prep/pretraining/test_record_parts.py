import itertools
import os

import numpy as np
import pytest

from albert_tf.records import counter_rng
from data_prep.pretraining import record_parts
from data_prep.pretraining.record_maker import RecordBatch
from data_prep.pretraining.record_parts import (
    Partition,
    read_part,
    shard_records,
    write_part,
)

PARTITION = Partition({"train": 12, "eval": 2})


def random_batches(seed, number=7):
    rng = np.random.default_rng(seed)
    for count in range(number):
        size = int(rng.integers(0, 40))
        keys = counter_rng.fold_in(counter_rng.key(seed, count), range(size))
        yield RecordBatch(
            "eval" if rng.random() < 0.3 else "train",
            keys,
            [rng.bytes(int(rng.integers(0, 50))) for _ in range(size)],
        )


def all_records(runs, partition=PARTITION):
    return {
        split: [
            record
            for shard in range(number)
            for record in shard_records(runs, partition, split, shard)
        ]
        for split, number in partition.num_shards.items()
    }


def by_key(batches, split):
    pairs = [
        (key, record)
        for batch in batches
        if batch.split == split
        for key, record in zip(
            batch.keys.tolist(), batch.serialized, strict=True
        )
    ]
    return [record for _, record in sorted(pairs)]


@pytest.mark.parametrize("run_bytes", [1, 500, 10**9])
@pytest.mark.parametrize("sorted_bytes", [100, 10**9])
def test_shards_hold_all_records_in_the_order_of_their_keys(
    tmp_path, monkeypatch, run_bytes, sorted_bytes
):
    monkeypatch.setattr(record_parts, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(record_parts, "SORTED_BYTES", sorted_bytes)
    parts = [*(list(random_batches(seed)) for seed in (1, 2, 3)), []]
    runs = []
    for number, batches in enumerate(parts):
        runs += write_part(str(tmp_path), number, PARTITION, batches, {}, "")
    together = [batch for batches in parts for batch in batches]
    found = all_records(runs)
    for split in ("train", "eval"):
        assert found[split] == by_key(together, split)
        assert len(found[split]) > 50


@pytest.mark.parametrize("number", [1, 3, 4096])
def test_a_shard_is_a_range_of_keys(number):
    partition = Partition({"train": number})
    keys = counter_rng.fold_in(5, np.arange(20_000))
    shards = partition.shards_of("train", keys)
    counts = np.bincount(shards.astype(int), minlength=number)
    assert len(counts) == number
    expected = 20_000 / number
    assert np.abs(counts - expected).max() < 6 * expected**0.5
    ranges = [partition.key_range("train", n) for n in range(number)]
    assert ranges[0][0] == 0 and ranges[-1][1] == 2**64
    for one, other in itertools.pairwise(ranges):
        assert one[1] == other[0]
    borders = [key for begin, end in ranges for key in (begin, end - 1)]
    shards = partition.shards_of("train", np.array(borders, np.uint64))
    assert shards.tolist() == [n for n in range(number) for _ in range(2)]


def test_equal_keys_fall_back_on_the_records(tmp_path):
    keys = np.full(2, 7, np.uint64)
    partition = Partition({"train": 1})
    runs = []
    for number, records in enumerate([[b"d", b"b"], [b"a", b"c"]]):
        batch = RecordBatch("train", keys, records)
        runs += write_part(str(tmp_path), number, partition, [batch], {}, "")
    found = all_records(runs, partition)
    assert found == {"train": [b"a", b"b", b"c", b"d"]}


def test_a_part_counts_when_it_is_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(record_parts, "RUN_BYTES", 1)
    directory, counts = str(tmp_path), {"train/documents": 4}

    def interrupted():
        yield from random_batches(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_part(directory, 4, PARTITION, interrupted(), counts, "a")
    assert read_part(directory, 4, "a") is None
    runs = write_part(directory, 4, PARTITION, random_batches(1), counts, "a")
    assert read_part(directory, 4, "a") == (counts, runs)
    assert read_part(directory, 4, "b") is None
    names = list(map(os.path.basename, runs))
    assert len(names) > 1
    assert sorted(os.listdir(tmp_path)) == [*names, "unit-000004.json"]
