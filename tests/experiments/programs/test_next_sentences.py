"""Held-out pairs with random segments, from shards of one text."""

import numpy as np
import pytest

from albert_tf.records.schemas import parse_batch
from albert_tf.records.shards import open_shards
from experiments.programs import next_sentences
from experiments.programs.next_sentences import with_random_segments

LENGTH = 12


def columns(pairs):
    """Returns the features of pairs of segments, each a list of ids."""
    rows = [
        [1, *first, 2, *second, 2] + [0] * (LENGTH - 3 - len(first + second))
        for first, second in pairs
    ]
    firsts = np.array([[len(first) + 2] for first, _ in pairs])
    input_ids = np.array(rows)
    mask = (input_ids > 0).astype(np.int32)
    return {
        "input_ids": input_ids,
        "segment_ids": mask * (np.arange(LENGTH) >= firsts),
        "word_starts": mask,
        "input_mask": mask,
        "sentence_order_label": np.zeros(len(rows), np.int64),
    }


def test_half_of_the_pairs_get_a_second_segment_as_the_other_has_it():
    real = columns([([10, 11], [20]), ([12], [21, 22, 23])] * 200)
    donors = columns([([30, 31], [40, 41, 42, 43]), ([32], [44])])
    pairs = with_random_segments(real, donors, np.random.default_rng(0))
    labels = pairs["sentence_order_label"]
    assert len(labels) == 400
    assert labels.mean() == pytest.approx(0.5, abs=0.08)
    after = columns([([10, 11], [40, 41, 42, 43]), ([12], [44])] * 200)
    for name in ("input_ids", "segment_ids", "word_starts", "input_mask"):
        expected = np.where(labels[:, None] == 1, after[name], real[name])
        np.testing.assert_array_equal(pairs[name], expected)


def test_a_pair_without_another_of_its_length_is_left_out():
    real = columns([([10, 11], [20]), ([12], [21]), ([13, 14, 15], [22])])
    # The second donor is the pair itself.
    donors = columns([([30, 31], [40]), ([12], [21])])
    pairs = with_random_segments(real, donors, np.random.default_rng(0))
    np.testing.assert_array_equal(pairs["input_ids"][:, 1], [10])


@pytest.mark.parametrize("split", ["train", "eval"])
def test_shards_have_both_labels(shards_dir, tmp_path, split):
    next_sentences.main(str(shards_dir), split, str(tmp_path / "pairs"))
    with open_shards(tmp_path / "pairs", "eval") as shards:
        records = shards.read(range(len(shards)))
        length = shards.metadata["max_seq_length"]
    pairs = parse_batch("dynamic", records, max_seq_length=length)
    assert set(pairs["sentence_order_label"].tolist()) == {0, 1}
