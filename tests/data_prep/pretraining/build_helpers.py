"""Reads and compares what builds have written."""

import hashlib

from albert_tf.records.schemas import parse_batch
from albert_tf.records.shards import open_shards
from data_prep.pretraining import build_plan, record_parts


def digests(directory):
    """sha256 of every file, at any depth, by name."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def work_in_pieces(patch):
    """Makes units and runs small, and sorts little at a time."""
    patch.setattr(build_plan, "_MAX_UNIT_CHARS", 1500)
    patch.setattr(build_plan, "_MIN_UNIT_CHARS", 1500)
    patch.setattr(record_parts, "SORTED_BYTES", 3000)
    patch.setattr(record_parts, "RUN_BYTES", 2000)


def read_split(directory, split="train"):
    with open_shards(directory, split) as shards:
        metadata = shards.metadata
        return parse_batch(
            metadata["record_kind"],
            shards.read(range(len(shards))),
            max_seq_length=metadata["max_seq_length"],
            num_slots=metadata["num_slots"],
        )
