"""Pretraining records made by hand, of a vocabulary of six pieces."""

import numpy as np

from albert_tf.config import MaskingConfig, to_dict
from albert_tf.io.json_files import write_json
from albert_tf.records.schemas import serialize_batch
from albert_tf.records.shards import (
    describe_tokenizer,
    shard_name,
    split_entry,
    write_shard,
)
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

LENGTH, SLOTS = 12, 3
# Two of the eleven tokens of a pair are masked.
MASKING = MaskingConfig(masked_lm_prob=0.2)
PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d ##e ##f"
TOKENIZER = WordPieceTokenizer(PIECES.split())
PAD, UNK, CLS, SEP, MASK, A, B, C, D, E, F, BEYOND = range(12)
FIRST, SECOND = [A, B, E, C], [D, A, B, F]


def dynamic_record(*segments, label=0):
    """A record of these segments, by default of two."""
    ids, segment_ids = [CLS], [0]
    for number, segment in enumerate(segments or (FIRST, SECOND)):
        ids += [*segment, SEP]
        segment_ids += [number] * (len(segment) + 1)
    padding = [0] * (LENGTH - len(ids))
    return {
        "input_ids": ids + padding,
        "input_mask": [1] * len(ids) + padding,
        "segment_ids": segment_ids + padding,
        "word_starts": [int(i not in (E, F)) for i in ids] + padding,
        "sentence_order_label": label,
    }


def static_record(masks, *segments, label=0):
    """A record in which `masks` shows other tokens at some positions."""
    record = dynamic_record(*segments, label=label)
    ids, unused = record["input_ids"], [0] * (SLOTS - len(masks))
    return record | {
        "input_ids": [masks.get(p, i) for p, i in enumerate(ids)],
        "token_boundary": record.pop("word_starts"),
        "masked_lm_positions": [*masks, *unused],
        "masked_lm_ids": [*(ids[p] for p in masks), *unused],
        "masked_lm_weights": [1.0] * len(masks) + [0.0] * len(unused),
    }


def serialized(kind, record):
    if kind == "dynamic":
        length = sum(record["input_mask"])
        record = {n: np.atleast_1d(v)[:length] for n, v in record.items()}
        del record["input_mask"]
    columns = {n: np.atleast_1d(v)[None] for n, v in record.items()}
    (data,) = serialize_batch(kind, columns)
    return data


def write_shards(directory, splits, **metadata):
    """Writes shards, each a list of serialised records, and metadata.json."""
    entries = {}
    for split, parts in splits.items():
        names = [shard_name(split, n, len(parts)) for n in range(len(parts))]
        infos = map(write_shard, map(directory.joinpath, names), parts)
        entries[split] = split_entry([*infos])
    metadata = {"format_version": 1, "splits": entries} | metadata
    write_json(directory / "metadata.json", metadata)


def write_directory(
    directory, records, objective="sop", *, parts=1, statistics=(), **changes
):
    """Writes records, perhaps serialised, as a directory of `parts` shards.

    Further keywords are entries of metadata.json.
    """
    kind = "dynamic"
    if isinstance(records[0], dict):
        kind = "static" if "token_boundary" in records[0] else "dynamic"
        records = [serialized(kind, record) for record in records]
    TOKENIZER.save(directory / "tokenizer")
    metadata = {
        "record_kind": kind,
        "sentence_objective": objective,
        "max_seq_length": LENGTH,
        "num_slots": SLOTS if kind == "static" else 0,
        "tokenizer": describe_tokenizer(TOKENIZER),
        "statistics": {"train": dict(statistics)},
        "settings": {"masking": to_dict(MASKING)},
    }
    splits = {"train": [records[number::parts] for number in range(parts)]}
    write_shards(directory, splits, **metadata | changes)
    return directory
