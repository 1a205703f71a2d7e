import os
from collections import Counter

import numpy as np
import pytest

from albert_tf.text import counter_rng
from data_prep import record_parts
from data_prep.record_maker import RecordBatch
from data_prep.record_parts import (
    Partition,
    PartWriter,
    bucket_records,
    list_runs,
    part_counts,
)

PARTITION = Partition({"train": 3, "eval": 2}, {"train": 4, "eval": 1})


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


def all_records(directory, partition):
    runs = list_runs(directory)
    return {
        split: [
            record
            for bucket in range(partition.num_buckets(split))
            for record in bucket_records(runs, partition, split, bucket)
        ]
        for split in partition.num_shards
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
def test_buckets_hold_all_records_in_the_order_of_their_keys(
    tmp_path, monkeypatch, run_bytes
):
    monkeypatch.setattr(record_parts, "RUN_BYTES", run_bytes)
    parts = [list(random_batches(seed)) for seed in (1, 2, 3)]
    for number, batches in enumerate(parts):
        writer = PartWriter(str(tmp_path), number, PARTITION)
        for batch in batches:
            writer.add(batch)
        writer.finish({})
    together = [batch for batches in parts for batch in batches]
    found = all_records(str(tmp_path), PARTITION)
    for split in ("train", "eval"):
        assert found[split] == by_key(together, split)
        assert len(found[split]) > 50
    others = Partition({"train": 1, "eval": 1}, {"train": 1, "eval": 1})
    assert PARTITION.to_json() == Partition(**PARTITION.to_json()).to_json()
    assert others.num_buckets("train") == 1


def test_a_bucket_holds_the_keys_of_its_range():
    keys = counter_rng.fold_in(5, np.arange(20_000))
    buckets = PARTITION.buckets_of("train", keys)
    exact = [key * 12 >> 64 for key in keys.tolist()]
    assert buckets.tolist() == exact
    counts = np.bincount(buckets.astype(int), minlength=12)
    assert counts.min() > 1400 and counts.max() < 1950
    extremes = np.array([0, 2**64 - 1], np.uint64)
    assert PARTITION.buckets_of("train", extremes).tolist() == [0, 11]


def test_a_shard_is_a_range_of_buckets():
    assert [*PARTITION.shard_buckets("train", 0)] == [0, 1, 2, 3]
    assert [*PARTITION.shard_buckets("train", 2)] == [8, 9, 10, 11]
    assert [*PARTITION.shard_buckets("eval", 1)] == [1]
    assert PARTITION.shard_name("eval", 1) == "eval-00001-of-00002.tfrecord"


def test_equal_keys_fall_back_on_the_records(tmp_path):
    keys = np.full(4, 7, np.uint64)
    partition = Partition({"train": 1}, {"train": 1})
    for number, records in enumerate([[b"d", b"b"], [b"a", b"c"]]):
        writer = PartWriter(str(tmp_path), number, partition)
        writer.add(RecordBatch("train", keys[:2], records))
        writer.finish({})
    found = all_records(str(tmp_path), partition)
    assert found == {"train": [b"a", b"b", b"c", b"d"]}


def test_a_part_counts_when_it_is_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(record_parts, "RUN_BYTES", 1)
    directory = str(tmp_path)
    writer = PartWriter(directory, 4, PARTITION)
    for batch in random_batches(1):
        writer.add(batch)
    assert part_counts(directory, 4) is None
    assert list_runs(directory) == []
    writer.finish({"train/documents": 3})
    assert part_counts(directory, 4) == Counter({"train/documents": 3})
    runs = list_runs(directory)
    assert len(runs) > 1
    assert sorted(os.listdir(directory)) == sorted(
        [*(os.path.basename(run) for run in runs), "part-000004.json"]
    )


def test_a_part_may_be_empty(tmp_path):
    PartWriter(str(tmp_path), 0, PARTITION).finish({})
    assert part_counts(str(tmp_path), 0) == Counter()
    assert all_records(str(tmp_path), PARTITION) == {"train": [], "eval": []}
