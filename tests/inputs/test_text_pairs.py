"""Pairs of texts: which there are, and their batches."""

import itertools

import numpy as np

from albert_tf.inputs.text_pairs import (
    PAIR_SOURCES,
    PairBatches,
    distinct_pairs,
    pair_features,
    separate_pairs,
)

DOCUMENTS = [["a", "b", "c"], ["d"], ["b", "c", "e"]]


def pairs_of(source):
    return itertools.chain(*map(PAIR_SOURCES[source], DOCUMENTS))


def batches_of_eight(pairs, tokenizer):
    """Returns batches of training on these pairs."""
    return PairBatches(
        pair_features(pairs, tokenizer, 16),
        batch_size=8,
        seed=0,
        widths=(16,),
        training=True,
    )


def test_sources_give_neighbours_and_the_same_text_but_no_text_twice():
    neighbours = [("a", "b"), ("b", "c"), ("c", "e")]
    assert distinct_pairs(pairs_of("neighbours")) == neighbours
    same = distinct_pairs(pairs_of("dropout"))
    assert same == [(text, text) for text in "abcde"]


def test_no_text_of_a_held_out_pair_is_learned():
    learned = distinct_pairs(pairs_of("neighbours"), [("e", "f"), ("a", "g")])
    assert learned == [("b", "c")]


def test_separate_pairs_have_no_text_in_common():
    assert [*separate_pairs("abcde")] == [("a", "b"), ("c", "d")]


def test_a_batch_has_both_texts_of_its_pairs_in_one_part(tiny_tokenizer):
    pairs = [("the of", "and"), ("of", "the and the")] * 4
    batches = batches_of_eight(pairs, tiny_tokenizer)
    batch = batches.batch(0)
    assert "part_widths" not in batch
    assert batch["input_ids"].shape == (8, 2, 16)
    number = batches.record_numbers(0)[3]
    for ids, mask, text in zip(
        batch["input_ids"][3],
        batch["input_mask"][3],
        pairs[number],
        strict=True,
    ):
        expected = tiny_tokenizer.encode_batch([text])[0]
        np.testing.assert_array_equal(ids[mask == 1][1:-1], expected)


def test_a_pair_that_two_epochs_have_in_a_batch_counts_once(tiny_tokenizer):
    pairs = [(f"the {n}", f"of {n}") for n in range(5)]
    batches = batches_of_eight(pairs, tiny_tokenizer)
    for step in range(5):
        numbers = batches.record_numbers(step)
        weights = batches.batch(step)["example_weights"]
        halves = [batches.batch(step, rows) for rows in (range(4), range(4, 8))]
        counted = np.bincount(numbers, weights, minlength=5)
        np.testing.assert_array_equal(
            counted, np.bincount(numbers, minlength=5) > 0
        )
        np.testing.assert_array_equal(
            np.concatenate([half["example_weights"] for half in halves]),
            weights,
        )
