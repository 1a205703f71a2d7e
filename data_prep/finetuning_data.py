"""A task's examples as TFRecord shards, padded, for whatever reads those.

Features have the names of google-research/albert's records: `input_ids`,
`input_mask`, `segment_ids`; of texts and choices `label_ids` and
`is_real_example`; of words and of several labels `label_weights` too; of
questions `unique_ids`, `start_positions`, `end_positions`, and of those that
may have no answer `p_mask` and `is_impossible`. Sequences are
max_seq_length long, those of several choices one after another.
"""

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import FeatureConfig, Log, require, to_dict
from albert_tf.io import files
from albert_tf.io.json_files import write_json
from albert_tf.records import counter_rng
from albert_tf.records.example_wire import encode_examples
from albert_tf.records.shards import (
    FORMAT_VERSION,
    METADATA_NAME,
    TOKENIZER_DIRECTORY,
    ShardInfo,
    describe_tokenizer,
    shard_name,
    split_entry,
    write_shard,
)
from albert_tf.tasks.base import Task
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.tasks.features import Features
from albert_tf.text.tokenizer import load_tokenizer

TRAIN = "train"
# Approximate size of a shard, where num_shards is 0.
_SHARD_BYTES = 64 << 20
# Records per batch.
_BATCH = 1000
# The original's first number of a question's window.
_FIRST_UNIQUE_ID = 1_000_000_000


def build_finetuning_data(
    task: Task,
    data_dir: str,
    output_dir: str,
    *,
    tokenizer_dir: str,
    config: FeatureConfig,
    splits: Sequence[str] = (),
    num_shards: int = 0,
    seed: int = 12345,
    workers: int = 1,
    log: Log = print,
) -> dict[str, Any]:
    """Writes the records of a task and returns their metadata.json.

    One seed gives the same bytes, whatever the number of workers. Training
    records are shuffled, the others in the order of their file; a missing
    label is 0.

    `splits` are by default the training split and the evaluated ones; each
    has `num_shards` shards, or one per 64 MB. The output directory is made
    where missing, else empty; `config` says how examples become sequences.

    Raises:
        UserError: for files that are wrong, an output directory that is not
            empty, and more shards than records; nothing is written then.
    """
    names = files.listdir(output_dir) if files.exists(output_dir) else []
    # Even shards without a metadata.json may be somebody's.
    require(
        not names,
        f"{output_dir} holds {', '.join(names[:1])}; name an empty "
        "--output_dir, or remove it.",
    )
    tokenizer = load_tokenizer(tokenizer_dir)
    examples = {
        split: task.read(data_dir, split, log)
        for split in splits or [TRAIN, *task.evaluated.values()]
    }
    labels = _labels(task, data_dir, examples, log)
    builder = FeatureBuilder(
        task.kind, tokenizer, config, labels, workers, log=log
    )
    features_of = {
        split: builder.build(of_split, training=split == TRAIN)
        for split, of_split in examples.items()
    }
    for split, features in features_of.items():
        require(
            num_shards <= len(features),
            f"num_shards={num_shards} is more than the {len(features)} "
            f"records of {split}.",
        )
    files.makedirs(output_dir)
    entries = {}
    for split, features in features_of.items():
        key = counter_rng.key(seed, "records", task.name)
        order = _order(split, len(features), key)
        records = functools.partial(
            _records, features, order, config.max_seq_length
        )
        shards = _write_split(
            output_dir, split, records, len(order), num_shards
        )
        entries[split] = {
            **split_entry(shards),
            "num_examples": len(examples[split]),
        }
        log(
            f"{split}: {len(examples[split])} examples, {len(features)} "
            f"records, {len(shards)} shards."
        )
    tokenizer.save(
        os.path.join(output_dir, TOKENIZER_DIRECTORY), config.max_seq_length
    )
    metadata = {
        "format_version": FORMAT_VERSION,
        "record_kind": task.kind.head,
        "task": task.name,
        "labels": labels,
        "max_seq_length": config.max_seq_length,
        "random_seed": seed,
        "tokenizer": describe_tokenizer(tokenizer),
        "splits": entries,
        "settings": {"features": to_dict(config)},
    }
    write_json(os.path.join(output_dir, METADATA_NAME), metadata)
    return metadata


def _labels(
    task: Task,
    data_dir: str,
    examples: Mapping[str, Sequence[Any]],
    log: Log,
) -> list[str]:
    """Returns the task's labels: by default those of training examples."""
    labels = list(task.labels)
    if task.kind.labelled and not labels:
        training = examples.get(TRAIN) or task.read(data_dir, TRAIN, log)
        labels = task.kind.labels(training)
    return labels


def _order(split: str, number: int, key: np.uint64) -> np.ndarray:
    """Returns the order of a split's records: shuffled for training."""
    order = np.arange(number)
    if split == TRAIN:
        return counter_rng.shuffled_position(order, number, key)
    return order


def _write_split(
    output_dir: str,
    split: str,
    records: Callable[[range], Iterator[bytes]],
    num_records: int,
    num_shards: int,
) -> list[ShardInfo]:
    """Writes the shards of a split; as many as its size asks for if 0."""
    num_bytes = len(next(records(range(1)))) * num_records
    num_shards = num_shards or math.ceil(num_bytes / _SHARD_BYTES)
    edges = np.linspace(0, num_records, num_shards + 1).astype(np.int64)
    return [
        write_shard(
            os.path.join(output_dir, shard_name(split, shard, num_shards)),
            records(range(start, end)),
        )
        for shard, (start, end) in enumerate(itertools.pairwise(edges.tolist()))
    ]


def _records(
    features: Features, order: np.ndarray, max_seq_length: int, numbers: range
) -> Iterator[bytes]:
    """Yields the records of these numbers."""
    for start in range(numbers.start, numbers.stop, _BATCH):
        rows = order[start : min(start + _BATCH, numbers.stop)]
        columns = features.batch(rows, max_seq_length)
        if "start_positions" in columns:
            own_ids = _FIRST_UNIQUE_ID + start + np.arange(len(rows))
            columns["unique_ids"] = own_ids
        else:
            columns["is_real_example"] = np.ones(len(rows), np.int64)
        yield from encode_examples(columns)
