from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from albert_tf.config import PretrainingDataConfig
from albert_tf.records import counter_rng
from albert_tf.records.segments import DocumentCutter, TokenizedDocument
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES

FRAMING = 3  # tokens of the flat array that belong to no document


def document(sizes, name="a", begin=FRAMING):
    borders = (begin + np.cumsum([0, *sizes])).tolist()
    return TokenizedDocument(borders, counter_rng.key(1, name))


def library(*all_sizes):
    documents, begin = [], FRAMING
    for number, sizes in enumerate(all_sizes):
        documents.append(document(sizes, f"d{number}", begin))
        begin = documents[-1].borders[-1]
    return documents


def cut(objective, documents, number=0, *, word_starts=None, **changes):
    counts = Counter()
    if word_starts is None:
        word_starts = np.ones(documents[-1].borders[-1], bool)
    config = PretrainingDataConfig(**{"max_seq_length": 32} | changes)
    with_text = [n for n, d in enumerate(documents) if len(d.borders) > 1]
    found = SENTENCE_OBJECTIVES[objective].instances(
        documents, with_text, number, word_starts, config, counts
    )
    by_key = list(found)
    assert len(dict(by_key)) == len(by_key)
    return [instance for _, instance in by_key], counts


def in_text_order(instance):
    first, second, label, _ = instance
    return (second, first) if label else (first, second)


sentence_sizes = st.lists(st.integers(1, 40), min_size=1, max_size=30)
settings_of_a_cut = st.fixed_dictionaries(
    {
        "max_seq_length": st.integers(8, 64),
        "short_seq_prob": st.sampled_from([0.0, 0.1, 1.0]),
        "dupe_factor": st.integers(1, 3),
    }
)
every_second_word = st.integers(1, 9)


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(["sop", "none"]),
    sentence_sizes,
    settings_of_a_cut,
    every_second_word,
)
def test_instances_are_consecutive_text_and_lose_none(
    objective, sizes, how, word_size
):
    word_starts = np.arange(2000) % word_size == 0
    documents = library(sizes)
    instances, counts = cut(
        objective, documents, word_starts=word_starts, **how
    )
    if not instances:
        assert objective == "sop" and len(sizes) == 1
        assert counts["skipped/single_sentence_documents"] == 1
        assert counts["skipped/tokens"] == sum(sizes)
        return
    times = np.zeros(documents[0].borders[-1], int)
    for instance in instances:
        # Consecutive text of bounded length.
        (a, b), (c, d) = in_text_order(instance)
        assert b == c
        if objective == "sop":
            assert a < b < d <= a + how["max_seq_length"] - 3
        else:
            assert a < b == d <= a + how["max_seq_length"] - 2
        times[a:d] += 1
    copies = how["dupe_factor"]
    assert (times[FRAMING:] >= copies).all()
    # What is there twice is the company of a last sentence, and counted.
    assert times.sum() == copies * sum(sizes) + counts["repeated_tokens"]
    if objective == "none":
        assert counts["repeated_tokens"] == 0


@settings(max_examples=40, deadline=None)
@given(sentence_sizes, st.integers(16, 64))
def test_segments_begin_at_sentences_or_at_words_of_long_ones(sizes, length):
    word_starts = np.arange(2000) % 3 == 0
    documents = library(sizes)
    borders = set(documents[0].borders)
    instances, _ = cut(
        "sop", documents, word_starts=word_starts, max_seq_length=length
    )
    for instance in instances:
        (begin, split), (_, end) = in_text_order(instance)
        for place in (begin, split, end):
            # A last sentence that all but fills an instance leaves its
            # company no room for a whole word.
            no_room = place == begin and split - begin < 3
            assert place in borders or word_starts[place] or no_room


@settings(max_examples=40, deadline=None)
@given(
    st.lists(sentence_sizes, min_size=1, max_size=4),
    settings_of_a_cut,
    st.data(),
)
def test_next_sentences_follow_or_are_of_another_document(all_sizes, how, data):
    documents = library(*all_sizes)
    number = data.draw(st.integers(0, len(documents) - 1))
    own = documents[number].borders
    instances, counts = cut("nsp", documents, number, **how)
    times = np.zeros(documents[-1].borders[-1], int)
    for instance in instances:
        (a, b), (c, d) = instance.first, instance.second
        times[a:b] += 1
        if instance.label == 0:
            times[c:d] += 1
        assert own[0] <= a < b <= own[-1]
        assert c < d
        assert (b - a) + (d - c) <= how["max_seq_length"] - 3
        if instance.label == 0:
            assert b == c and d <= own[-1]
        else:
            other = next(
                o for o in documents if o.borders[0] <= c < o.borders[-1]
            )
            assert other is not documents[number]
            assert c in other.borders
            assert d <= other.borders[-1]
    if len(documents) == 1:
        assert not any(instance.label for instance in instances)
        assert counts["without_other_document"] <= len(instances)
    if instances:
        # No text is lost.
        assert (times[own[0] : own[-1]] >= how["dupe_factor"]).all()


@given(
    st.lists(st.booleans(), min_size=2, max_size=9),
    st.floats(0, 1, exclude_max=True),
    st.data(),
)
def test_a_partner_is_any_other_document_with_text(have_text, draw, data):
    documents = library(*([5] * filled for filled in have_text))
    with_text = [n for n, filled in enumerate(have_text) if filled]
    others = len(with_text) - 1
    assume(others > 0)
    number = data.draw(st.sampled_from(with_text))
    cutter = DocumentCutter(
        documents, with_text, number, None, PretrainingDataConfig(), 2, None
    )
    expected = [documents[n] for n in with_text if n != number]
    assert cutter.has_partner()
    assert cutter.partner(draw) is expected[int(draw * others)]


@pytest.mark.parametrize("objective", ["sop", "nsp"])
def test_labels_are_balanced(objective):
    documents = library(*([[9, 8, 7, 11, 5] * 40] * 5))
    labels = [
        instance.label
        for number in range(5)
        for instance in cut(objective, documents, number, dupe_factor=40)[0]
    ]
    # Five standard deviations of a fair coin.
    assert abs(np.mean(labels) - 0.5) < 2.5 / np.sqrt(len(labels))
    assert len(labels) > 5000


@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_lengths_are_drawn_for_each_instance_not_for_each_document(objective):
    documents = library([3] * 4000, [3] * 4000)
    how = {"max_seq_length": 64, "short_seq_prob": 0.1, "dupe_factor": 10}
    instances, _ = cut(objective, documents, **how)
    if objective == "nsp":
        instances = [i for i in instances if not i.label]
    lengths = np.array(
        [
            sum(end - begin for begin, end in (i.first, i.second))
            for i in instances
        ]
    )
    # Twenty sentences fill a sequence; a target of 59 and less leaves one out.
    short = (lengths < 60).mean()
    expected = 0.1 * 58 / 60
    assert abs(short - expected) < 5 * np.sqrt(expected / len(lengths))
    assert {*range(9, 61, 3)} <= {*lengths.tolist()}


def test_splits_between_sentences_are_uniform():
    documents = library([10] * 6000)
    instances, _ = cut("sop", documents, max_seq_length=63, short_seq_prob=0.0)
    ordered = [in_text_order(instance) for instance in instances]
    sizes = Counter(b - a for (a, b), _ in ordered)
    assert sorted(sizes) == [10, 20, 30, 40, 50]
    expected = len(instances) / 5
    for count in sizes.values():
        assert abs(count - expected) < 5 * np.sqrt(expected)


@pytest.mark.parametrize(
    ("sizes", "max_seq_length", "spans"),
    [
        # A last sentence is paired with the one before.
        ([10, 10, 10, 10, 3], 23, [(3, 13, 23), (23, 33, 43), (33, 43, 46)]),
        # A sentence too long goes on in the next instance.
        ([5, 100, 5], 43, [(3, 8, 43), (43, 63, 83), (83, 108, 113)]),
    ],
)
def test_places_of_cuts(sizes, max_seq_length, spans):
    instances, _ = cut(
        "sop",
        [document(sizes)],
        max_seq_length=max_seq_length,
        short_seq_prob=0.0,
    )
    ordered = sorted(in_text_order(instance) for instance in instances)
    assert [(a, b, d) for (a, b), (_, d) in ordered] == spans


def test_a_cut_spares_the_sentence_before():
    # The second sentence is too long, and no word of it begins in reach.
    word_starts = np.isin(np.arange(100), [3, 25, 60])
    instances, _ = cut(
        "sop",
        [document([30, 50])],
        max_seq_length=43,
        short_seq_prob=0.0,
        word_starts=word_starts,
    )
    spans = sorted(in_text_order(instance) for instance in instances)
    assert [(a, d) for (a, _), (_, d) in spans] == [(3, 33), (33, 60), (43, 83)]


def test_a_last_sentence_may_be_followed_by_another_document():
    documents = library([10, 10, 3], [10] * 9)
    end = documents[0].borders[-1]
    how = {"max_seq_length": 23, "short_seq_prob": 0.0, "dupe_factor": 40}
    instances, _ = cut("nsp", documents, **how)
    ends = Counter((i.first, i.label) for i in instances)
    assert ends[(end - 3, end), 1] > 5
