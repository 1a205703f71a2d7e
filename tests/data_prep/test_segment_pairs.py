import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.text import counter_rng
from data_prep import segment_pairs

CLS, SEP = 2, 3
KEYS = st.integers(0, 2**63).map(np.uint64)


def numbered(lengths):
    """Sentences whose tokens are 10, 11, 12, ... through the document."""
    numbers = itertools.count(10)
    return [[next(numbers) for _ in range(n)] for n in lengths]


def instances_of(sentences, *, length=32, short=0.0, key=7):
    return list(
        segment_pairs.document_instances(
            sentences,
            max_seq_length=length,
            short_seq_prob=short,
            cls_id=CLS,
            sep_id=SEP,
            key=counter_rng.key(key),
        )
    )


def segments_of(instance):
    """A and B, by the segment ids."""
    tokens = list(zip(instance.input_ids, instance.segment_ids, strict=True))
    first = [token for token, segment in tokens if segment == 0]
    second = [token for token, segment in tokens if segment == 1]
    assert first[0] == CLS and first[-1] == SEP and second[-1] == SEP
    return first[1:-1], second[:-1]


def tokens_of(instance):
    """The tokens of both segments, sorted."""
    first, second = segments_of(instance)
    return sorted(first + second)


LENGTHS = st.lists(st.integers(1, 40), min_size=0, max_size=25)


@settings(deadline=None, max_examples=200)
@given(
    lengths=LENGTHS,
    length=st.integers(8, 64),
    short=st.sampled_from([0.0, 0.5, 1.0]),
    key=st.integers(0, 1000),
)
def test_invariants(lengths, length, short, key):
    sentences = numbered(lengths)
    ends = list(itertools.accumulate(lengths, initial=10))
    instances = instances_of(sentences, length=length, short=short, key=key)
    assert bool(instances) == (len(sentences) >= 2)
    seen = Counter()
    for instance in instances:
        assert len(instance.input_ids) <= length
        first, second = segments_of(instance)
        assert first and second
        if instance.sentence_order_label:
            first, second = second, first
        tokens = first + second
        # In the text's order, each segment a stretch of the document.
        assert tokens == sorted(set(tokens))
        for segment in (first, second):
            assert segment == list(range(segment[0], segment[-1] + 1))
        # The two meet at a sentence's end, save what truncation took.
        gap = range(first[-1] + 1, second[0] + 1)
        assert any(border in gap for border in ends)
        assert len(gap) - 1 <= instance.num_truncated
        assert instance.num_truncated == 0 or len(tokens) == length - 3
        seen.update(tokens)
    kept = sum(seen.values()) + sum(i.num_truncated for i in instances)
    repeated = kept - sum(lengths) if instances else 0
    # Nothing is lost unaccounted, and at most one sentence is used twice.
    assert repeated in {0, lengths[-2] if len(lengths) > 1 else 0}
    assert len({int(i.key) for i in instances}) == len(instances)


def test_a_chunk_takes_what_fits_and_no_more():
    # Room for 13 tokens: 4+4+4 fit, the next 4 begin the next chunk.
    instances = instances_of(numbered([4, 4, 4, 4, 4, 4, 2]), length=16)
    used = [tokens_of(i) for i in instances]
    assert used == [[*range(10, 22)], [*range(22, 34)], [*range(30, 36)]]
    assert all(i.num_truncated == 0 for i in instances)


def test_a_sentence_left_alone_borrows_the_one_before():
    instances = instances_of(numbered([6, 6, 6]), length=16)
    used = [tokens_of(i) for i in instances]
    assert used == [[*range(10, 22)], [*range(16, 28)]]


@pytest.mark.parametrize("sentences", [[], [[5]], [[5] * 500]])
def test_one_sentence_has_no_order(sentences):
    assert instances_of(sentences) == []


def test_labels_are_balanced_and_boundaries_uniform():
    sentences = numbered([1] * 5)
    labels, splits = Counter(), Counter()
    for key in range(2000):
        (instance,) = instances_of(sentences, length=8, key=key)
        first, second = segments_of(instance)
        labels[instance.sentence_order_label] += 1
        splits[len(second if instance.sentence_order_label else first)] += 1
    assert abs(labels[1] - 1000) < 4 * math.sqrt(2000 * 0.25)
    # 5 sentences fill 5 tokens; A has 1 to 4 of them.
    assert sorted(splits) == [1, 2, 3, 4]
    for count in splits.values():
        assert abs(count - 500) < 4 * math.sqrt(2000 * 0.25 * 0.75)


def test_short_lengths_are_drawn_per_instance():
    sentences = numbered([1] * 6000)
    full = instances_of(sentences, length=8)
    assert {len(i.input_ids) for i in full} == {8}
    for short in (1.0, 0.4):
        mixed = instances_of(sentences, length=8, short=short)[:-1]
        counts = np.bincount([len(i.input_ids) - 3 for i in mixed])
        # Short ones have 2, 3, 4 or 5 tokens alike, the others 5.
        shares = np.array([0, 0, 1, 1, 1, 1]) * short / 4
        shares[5] += 1 - short
        assert len(counts) == 6 and counts[0] == counts[1] == 0
        deviations = np.sqrt(shares * (1 - shares) / len(mixed))
        assert (abs(counts / len(mixed) - shares) <= 4 * deviations).all()


def test_the_key_decides_and_nothing_else():
    sentences = numbered([5] * 50)
    assert instances_of(sentences, key=1) == instances_of(sentences, key=1)
    assert instances_of(sentences, key=1) != instances_of(sentences, key=2)


def test_the_beginning_does_not_hang_on_the_end():
    sentences = numbered([5] * 50)
    whole = instances_of(sentences, short=0.3)
    part = instances_of(sentences[:40], short=0.3)
    assert whole[: len(part) - 1] == part[:-1]


# --------------------------------------------------------------- truncation


def lengths_one_by_one(first, second, limit):
    """google-research/albert: the longer one loses a token at a time."""
    while first + second > limit:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@pytest.mark.parametrize("limit", [5, 6, 9, 10])
def test_as_many_tokens_go_as_one_by_one(limit):
    for m, n in itertools.product(range(1, 15), repeat=2):
        first, second = segment_pairs.truncate_pair(
            [0] * m, [0] * n, limit, key=counter_rng.key(m, n)
        )
        assert (len(first), len(second)) == lengths_one_by_one(m, n, limit)


@given(st.integers(1, 60), st.integers(1, 60), KEYS)
def test_tokens_go_from_the_ends(m, n, key):
    first, second = segment_pairs.truncate_pair(
        list(range(m)), list(range(100, 100 + n)), 20, key=key
    )
    for segment in (first, second):
        assert segment == list(range(segment[0], segment[-1] + 1))


def test_both_ends_lose_alike():
    fronts = []
    for key in range(1000):
        first, _ = segment_pairs.truncate_pair(
            list(range(30)), [0] * 5, 25, key=counter_rng.key(key)
        )
        fronts.append(first[0])
    # 10 go; from the front a binomial number of them.
    assert abs(np.mean(fronts) - 5) < 4 * math.sqrt(2.5 / 1000)
    assert abs(np.var(fronts) - 2.5) < 0.6
