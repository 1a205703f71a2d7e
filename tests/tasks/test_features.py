"""Flat rows of inputs: against loops over lists."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.tasks.features import Features, concatenated, flat

PADDING = {"input_ids": 9, "label_ids": -1}


def features(rows, choices=0, truncated=()):
    """Returns rows of sequences (lists of tokens)."""
    sequences = [s for row in rows for s in row]
    ids, offsets = flat(sequences)
    return Features(
        sequences={"input_ids": ids, "label_ids": ids % 3},
        offsets=offsets,
        scalars={
            "weights": np.arange(len(rows), dtype=np.float32),
            "numbers": np.arange(len(rows), dtype=np.int32) * 2,
        },
        padding=PADDING,
        example_numbers=np.arange(len(rows)),
        choices=choices,
        decoding={"words": ids + 100},
        truncated=truncated,
    )


def padded(sequence, width, fill):
    return [*sequence[:width], *[fill] * (width - len(sequence))]


TOKENS = st.lists(st.integers(0, 50), min_size=1, max_size=7)


@st.composite
def rows_of_choices(draw):
    choices = draw(st.integers(0, 3))
    row = st.lists(TOKENS, min_size=choices or 1, max_size=choices or 1)
    return choices, draw(st.lists(row, min_size=1, max_size=5))


@settings(max_examples=60, deadline=None)
@given(rows_of_choices(), st.integers(1, 9), st.randoms())
def test_a_batch_against_loops(given_rows, width, random):
    choices, rows = given_rows
    found = features(rows, choices)
    chosen = [random.randrange(len(rows)) for _ in range(random.randint(1, 6))]
    batch = found.batch(np.array(chosen), width)
    ids = [[padded(s, width, 9) for s in rows[n]] for n in chosen]
    labels = [
        [padded([t % 3 for t in s], width, -1) for s in rows[n]] for n in chosen
    ]
    mask = [[padded([1] * len(s), width, 0) for s in rows[n]] for n in chosen]
    if not choices:
        ids, labels, mask = ([row[0] for row in x] for x in (ids, labels, mask))
    assert batch["input_ids"].tolist() == ids
    assert batch["label_ids"].tolist() == labels
    assert batch["input_mask"].tolist() == mask
    for name in ("input_ids", "label_ids", "input_mask"):
        assert batch[name].dtype == np.int32
    assert batch["numbers"].tolist() == [2 * n for n in chosen]
    assert batch["weights"].dtype == np.float32
    # What only decoding reads is no input.
    expected = {"input_ids", "label_ids", "input_mask", "weights", "numbers"}
    assert batch.keys() == expected
    assert len(found) == len(rows)
    assert found.lengths.tolist() == [max(map(len, row)) for row in rows]


@settings(max_examples=60, deadline=None)
@given(rows_of_choices(), st.data())
def test_parts_together_are_the_whole(given_rows, data):
    choices, rows = given_rows
    cuts = data.draw(st.sets(st.integers(1, len(rows)), max_size=3))
    edges = sorted({0, *cuts, len(rows)})
    parts = [
        features(rows[a:b], choices, truncated=range(b - a))
        for a, b in itertools.pairwise(edges)
    ]
    joined, whole = concatenated(parts), features(rows, choices)
    for field in ("sequences", "decoding"):
        mine, theirs = getattr(joined, field), getattr(whole, field)
        assert mine.keys() == theirs.keys()
        for name in theirs:
            np.testing.assert_array_equal(mine[name], theirs[name])
            assert mine[name].dtype == theirs[name].dtype
    expected = [n for a, b in itertools.pairwise(edges) for n in range(b - a)]
    assert joined.scalars["weights"].tolist() == expected
    np.testing.assert_array_equal(joined.offsets, whole.offsets)
    np.testing.assert_array_equal(joined.example_numbers, range(len(rows)))
    assert joined.truncated == list(range(len(rows)))
    assert (joined.padding, joined.choices) == (PADDING, choices)


def test_examples_of_several_rows_follow_one_another():
    first, second = features([[[1]], [[2]], [[3]]]), features([[[4]], [[5]]])
    first.example_numbers[:] = [0, 0, 1]
    second.example_numbers[:] = [0, 1]
    joined = concatenated([first, second, second])
    assert joined.example_numbers.tolist() == [0, 0, 1, 2, 3, 4, 5]
