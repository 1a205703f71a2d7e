"""Pairs for next-sentence accuracy where the held-out text is one document.

python -m experiments.programs.next_sentences SHARDS SPLIT OUTPUT_DIR

Half of the real pairs of the held-out records get the second segment of
another record of SPLIT (train: of other documents; eval: of held-out text).
"""

import os
import sys
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from albert_tf.config import require
from albert_tf.io import files
from albert_tf.io.json_files import write_json
from albert_tf.records.schemas import parse_batch, serialize_batch
from albert_tf.records.shards import (
    METADATA_NAME,
    open_shards,
    read_metadata,
    shard_name,
    split_entry,
    write_shard,
)

_SEED = 12345
# Records from which second segments are taken, as many at most.
_NUM_DONORS = 50_000

Columns = dict[str, np.ndarray]


def main(data: str, split: str, output: str) -> None:
    """Writes a directory of shards that has only a split `eval`."""
    rng = np.random.default_rng(_SEED)
    metadata = read_metadata(data)
    held_out = _read(data, "eval", rng)
    is_real = held_out["sentence_order_label"] == 0
    real = {name: column[is_real] for name, column in held_out.items()}
    pairs = with_random_segments(real, _read(data, split, rng), rng)
    files.makedirs(output)
    path = os.path.join(output, shard_name("eval", 0, 1))
    shard = write_shard(path, _serialize(pairs))
    entry = {"splits": {"eval": split_entry([shard])}, "statistics": {}}
    write_json(os.path.join(output, METADATA_NAME), metadata | entry)


def _read(data: str, split: str, rng: np.random.Generator) -> Columns:
    """Returns the features of a split's records, or of some of many."""
    with open_shards(data, split) as shards:
        size = min(len(shards), _NUM_DONORS)
        numbers = np.sort(rng.choice(len(shards), size, replace=False))
        length = shards.metadata["max_seq_length"]
        records = shards.read(numbers)
    return parse_batch("dynamic", records, max_seq_length=length)


def with_random_segments(
    real: Mapping[str, np.ndarray],
    donors: Mapping[str, np.ndarray],
    rng: np.random.Generator,
) -> Columns:
    """Returns pairs, of which half have a donor's second segment and label 1.

    A donor's first segment is as long as that of the pair, so that lengths
    give nothing away. A pair without another such donor is left out.
    """
    of_length = defaultdict(list)
    for donor, first in enumerate(_first_lengths(donors).tolist()):
        of_length[first].append(donor)
    first_lengths = _first_lengths(real)
    kept, chosen = [], []
    for number, first in enumerate(first_lengths.tolist()):
        second = real["input_ids"][number, first:]
        donor = rng.choice(of_length[first]) if of_length[first] else -1
        other = donors["input_ids"][donor, first:]
        if donor >= 0 and not np.array_equal(second, other):
            kept.append(number)
            chosen.append(donor)
    require(bool(kept), "The held-out text has no pairs of segments.")
    is_random = rng.random(len(kept)) < 0.5
    columns = np.arange(real["input_ids"].shape[1])
    is_second = columns >= first_lengths[kept][:, None]
    taken = is_random[:, None] & is_second
    pairs = {
        name: np.where(taken, donors[name][chosen], real[name][kept])
        for name in ("input_ids", "segment_ids", "word_starts", "input_mask")
    }
    return pairs | {"sentence_order_label": is_random.astype(np.int64)}


def _first_lengths(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the numbers of tokens before the second segment."""
    is_first = (columns["input_mask"] == 1) & (columns["segment_ids"] == 0)
    return is_first.sum(axis=1)


def _serialize(pairs: Columns) -> list[bytes]:
    is_token = pairs["input_mask"] == 1
    lengths = is_token.sum(axis=1)
    names = ("input_ids", "segment_ids", "word_starts")
    columns = {
        name: (pairs[name][is_token].astype(np.int64), lengths)
        for name in names
    }
    labels = (pairs["sentence_order_label"], np.ones_like(lengths))
    return serialize_batch(
        "dynamic", {**columns, "sentence_order_label": labels}
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
