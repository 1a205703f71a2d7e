import bisect
import dataclasses
import hashlib
import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from albert_tf.config import MaskingConfig
from albert_tf.records import counter_rng, masking
from tests.counted_work import steps_below

PAD, UNK, CLS, SEP, MASK = 0, 1, 2, 3, 4
SPECIAL = (PAD, UNK, CLS, SEP, MASK)
REPLACEMENTS = np.arange(5, 1000, dtype=np.int32)


@dataclasses.dataclass
class Row:
    """A sequence without padding."""

    ids: list
    starts: list
    segments: list
    key: int


def make_row(first, second, key):
    """[CLS] A [SEP] B [SEP] of (id, starts a word) pairs."""
    tokens = [(CLS, True), *first, (SEP, True), *second, (SEP, True)]
    return Row(
        [token for token, _ in tokens],
        [start for _, start in tokens],
        [0] * (len(first) + 2) + [1] * (len(second) + 1),
        key,
    )


def random_rows(count, length, seed, *, starts=0.7):
    """Rows of `length` tokens, about `starts` of which begin a word."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        ids = rng.integers(5, 1000, length - 3).tolist()
        begins = (rng.random(length - 3) < starts).tolist()
        tokens = list(zip(ids, begins, strict=True))
        split = int(rng.integers(1, length - 3))
        key = int(counter_rng.key("row", seed, number))
        rows.append(make_row(tokens[:split], tokens[split:], key))
    return rows


def mask_rows(
    rows, config=MaskingConfig(), *, num_slots=80, width=None, weights=None
):
    lengths = np.array([len(row.ids) for row in rows])
    width = width or int(lengths.max())

    def padded(lists, dtype):
        array = np.zeros((len(rows), width), dtype)
        for row, values in enumerate(lists):
            array[row, : len(values)] = values
        return array

    input_ids = padded([row.ids for row in rows], np.int32)
    input_ids.flags.writeable = False  # the input is left as it was
    columns = {
        "input_ids": input_ids,
        "input_mask": np.arange(width) < lengths[:, None],
        "segment_ids": padded([row.segments for row in rows], np.int32),
        "word_starts": padded([row.starts for row in rows], bool),
    }
    return masking.mask_batch(
        columns,
        np.array([row.key for row in rows], np.uint64),
        config=config,
        num_slots=num_slots,
        ids=masking.MaskingIds(SPECIAL, MASK, REPLACEMENTS, weights),
    )


# A second implementation, one token after the other.


def words_of(row, config):
    """(start, end, run) of every word, read off token by token."""
    words, run, inside = [], 0, False
    for position, token in enumerate(row.ids):
        if token in SPECIAL:
            inside = False
            continue
        same_run = (
            inside and row.segments[position] == row.segments[position - 1]
        )
        if not same_run:
            run += 1
        starts = row.starts[position] or not config.whole_word_masking
        if same_run and not starts:
            words[-1] = (words[-1][0], position + 1, run)
        else:
            words.append((position, position + 1, run))
        inside = True
    return words


def draw(row, stream, position):
    keys = counter_rng.fold_in(np.uint64(row.key), stream)
    return float(counter_rng.uniform_at(keys, position)[0])


def choose_sequentially(row, config, budget):
    """The words that are hidden, and how many n-grams of each length."""
    words = words_of(row, config)

    def order(number):
        keys = counter_rng.fold_in(np.uint64(row.key), 0)
        bits = counter_rng.random_bits(keys, words[number][0])
        return int(bits[0]) >> 24, number

    power = -1.0 if config.favor_shorter_ngram else 1.0
    weights = [n**power for n in range(1, config.max_ngram + 1)]
    *borders, total = itertools.accumulate(weights)

    def ngram_length(count):
        return 1 + bisect.bisect_right(borders, draw(row, 1, count) * total)

    hidden, lengths = set(), Counter()
    size = 0
    for single in (False, True):
        count = 0
        for number in sorted(range(len(words)), key=order):
            if size == budget:
                break
            length = 1 if single else ngram_length(count)
            ngram = words[number : number + length]
            if len(ngram) < length or ngram[-1][2] != ngram[0][2]:
                continue

            def tokens(ngram):
                return sum(end - start for start, end, _ in ngram)

            while len(ngram) > 1 and size + tokens(ngram) > budget:
                ngram = ngram[:-1]
            if size + tokens(ngram) > budget or hidden & set(ngram):
                continue
            hidden |= set(ngram)
            lengths[len(ngram)] += 1
            size += tokens(ngram)
            count += 1
    return sorted(hidden), lengths


def budget_of(row, config, num_slots):
    return min(max(1, round(config.masked_lm_prob * len(row.ids))), num_slots)


def best_sum(row, config, budget):
    """The most tokens, up to the budget, that whole words can make."""
    sums = {0}
    for start, end, _ in words_of(row, config):
        sums |= {total + end - start for total in sums}
    return max(total for total in sums if total <= budget)


def mask_sequentially(row, hidden):
    """Ids, positions and labels of one row whose words are chosen."""
    positions = [p for start, end, _ in hidden for p in range(start, end)]
    ids = list(row.ids)
    for position in positions:
        action = draw(row, 2, position)
        if action < 0.8:
            ids[position] = MASK
        elif action >= 0.9:
            choice = draw(row, 3, position) * len(REPLACEMENTS)
            ids[position] = int(REPLACEMENTS[int(choice)])
    return ids, positions, [row.ids[p] for p in positions]


def assert_same(batch, number, row, config, num_slots):
    """Compares a row; returns how many n-grams of each length it has."""
    budget = budget_of(row, config, num_slots)
    hidden, lengths = choose_sequentially(row, config, budget)
    if sum(end - start for start, end, _ in hidden) < budget:
        # Other words may have been chosen then, to come closer to it.
        masked = batch.masked_lm_weights[number] > 0
        positions = set(batch.masked_lm_positions[number][masked].tolist())
        hidden = [w for w in words_of(row, config) if w[0] in positions]
        size = sum(end - start for start, end, _ in hidden)
        assert size == len(positions) == best_sum(row, config, budget)
    ids, positions, labels = mask_sequentially(row, hidden)
    count = len(positions)
    assert batch.input_ids[number].tolist()[: len(ids)] == ids
    assert batch.masked_lm_positions[number, :count].tolist() == positions
    assert batch.masked_lm_ids[number, :count].tolist() == labels
    assert batch.masked_lm_weights[number].tolist() == (
        [1.0] * count + [0.0] * (num_slots - count)
    )
    assert not batch.masked_lm_positions[number, count:].any()
    assert not batch.masked_lm_ids[number, count:].any()
    return lengths


MIXED_ROWS = [
    row
    for starts in (0.0, 0.2, 0.7, 1.0)
    for length in (5, 9, 30, 64)
    for row in random_rows(4, length, length, starts=starts)
]


TOKENS = st.lists(
    st.tuples(
        st.one_of(st.integers(5, 999), st.sampled_from(SPECIAL)), st.booleans()
    ),
    min_size=1,
    max_size=25,
)


# A segment may end without a special token, and with it a word.
BARE = Row([10] * 6, [False] * 6, [0, 0, 0, 1, 1, 1], 5)


@settings(deadline=None, max_examples=30)
@given(
    rows=st.lists(
        st.builds(make_row, TOKENS, TOKENS, st.integers(0, 2**64 - 1))
        | st.just(BARE),
        min_size=1,
        max_size=4,
    ),
    config=st.builds(
        MaskingConfig,
        masked_lm_prob=st.floats(0.0, 0.9),
        max_ngram=st.integers(1, 10),
        favor_shorter_ngram=st.booleans(),
        whole_word_masking=st.booleans(),
    ),
    num_slots=st.integers(1, 30),
    padding=st.integers(0, 5),
)
@example(
    rows=[BARE],
    config=MaskingConfig(masked_lm_prob=0.5),
    num_slots=3,
    padding=0,
)
def test_it_agrees_with_one_token_at_a_time(rows, config, num_slots, padding):
    """Whole words fill the budget, whatever the other rows and the padding."""
    width = max(len(row.ids) for row in rows) + padding
    batch = mask_rows(rows, config, num_slots=num_slots, width=width)
    lengths = Counter()
    for number, row in enumerate(rows):
        lengths += assert_same(batch, number, row, config, num_slots)
        assert not batch.input_ids[number, len(row.ids) :].any()
        alone = mask_rows([row], config, num_slots=num_slots)
        for ours, expected in zip(batch[:4], alone[:4], strict=True):
            ours = ours[number, : expected.shape[1]]
            np.testing.assert_array_equal(ours, expected[0])
    expected = [lengths[n] for n in range(config.max_ngram + 1)]
    assert batch.ngram_counts.tolist() == expected


@pytest.mark.parametrize(
    ("config", "digest"),
    [
        (MaskingConfig(), "f9c46a1ff697b6bb"),
        (MaskingConfig(favor_shorter_ngram=False), "90023857a3fc31d5"),
        (MaskingConfig(max_ngram=7, masked_lm_prob=0.4), "9c4af418820b8b71"),
        (
            MaskingConfig(masked_lm_prob=0.9, whole_word_masking=False),
            "c8ecc8551edd5153",
        ),
    ],
)
def test_recorded_masks_stay(config, digest):
    batch = mask_rows(MIXED_ROWS, config, num_slots=20)
    found = hashlib.sha256(b"".join(map(np.ndarray.tobytes, batch)))
    assert found.hexdigest()[:16] == digest
    masked = batch.masked_lm_weights > 0
    old = batch.masked_lm_ids[masked]
    new = np.take_along_axis(batch.input_ids, batch.masked_lm_positions, 1)
    new = new[masked]
    assert batch.counts(MASK) == {
        "masked_tokens": masked.sum(),
        "masked_tokens/as_mask": (new == MASK).sum(),
        "masked_tokens/as_is": (new == old).sum(),
        "masked_tokens/as_random": ((new != MASK) & (new != old)).sum(),
        **{
            f"masked_ngrams/{n}": batch.ngram_counts[n]
            for n in range(1, config.max_ngram + 1)
        },
    }


def test_no_loop_over_tokens_makes_it_slow():
    """Some steps per row, and none per token, of which there are 512."""
    rows = random_rows(256, 512, 13)
    with steps_below(256 * 64):
        mask_rows(rows)


@pytest.mark.parametrize(
    ("config", "probs"),
    [
        (MaskingConfig(), [6 / 11, 3 / 11, 2 / 11]),
        (MaskingConfig(favor_shorter_ngram=False), [1 / 6, 2 / 6, 3 / 6]),
    ],
)
def test_lengths_of_ngrams_have_their_distribution(config, probs):
    # Words of one token, and room for a third of them: the account of the
    # n-grams, but for the last of a row, which the budget may shorten.
    count, length = 400, 400
    batch = mask_rows(random_rows(count, length, 8, starts=1.0), config)
    lengths = batch.ngram_counts[1:]
    n = lengths.sum()
    assert n > 400 * 25
    assert lengths @ np.arange(1, len(probs) + 1) == count * 60
    for share, prob in zip(lengths / n, probs, strict=True):
        deviation = math.sqrt(prob * (1 - prob) / n)
        assert abs(share - prob) < 5 * deviation + count / n / 2


def test_words_are_drawn_in_proportion_to_the_mean_weight_of_their_pieces():
    words = [(10, True), (11, True), (12, True), (13, False), (14, True)]
    weights = np.ones(1000)
    weights[10:15] = 2, 1, 5, 3, 0.5
    count = 20_000
    rows = [
        make_row(words, [], int(counter_rng.key("weighted", n)))
        for n in range(count)
    ]
    config = MaskingConfig(masked_lm_prob=0.3, max_ngram=1)
    masked = mask_rows(rows, config, weights=weights).masked_lm_ids[:, :2]
    # Two tokens: the word of two, or one that is drawn before it and another.
    both = 4 / 7.5
    shares = {12: both, 13: both}
    for piece, others in ((10, (1, 0.5)), (11, (2, 0.5)), (14, (2, 1))):
        weight = weights[piece]
        first = weight / 7.5
        after = sum(w / 7.5 * weight / (3.5 - w) for w in others)
        shares[piece] = first + after
    for piece, prob in shares.items():
        found = (masked == piece).any(axis=1).mean()
        deviation = math.sqrt(prob * (1 - prob) / count)
        assert abs(found - prob) < 4 * deviation
