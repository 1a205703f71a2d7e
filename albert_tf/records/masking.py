"""N-gram masking of a batch of sequences (paper, section 4.1, equation 1).

`mask_batch` serves both readers of dynamic records and writers of static
ones. It follows google-research/albert's create_masked_lm_predictions with
its faults removed; each removal is marked "Differs from" below. What happens
to a row depends on the row and its key alone: not on the other rows, not on
padding.

The work is done on the words of the whole batch in flat arrays; the one loop
goes over the rank of a candidate within its row, every operation of it is on
all rows at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.config import MaskingConfig
from albert_tf.records import counter_rng

# Streams of random numbers under a row's key, each counted by token position,
# the lengths of n-grams by the number of the n-gram.
_ORDER, _NGRAM, _ACTION, _REPLACEMENT = range(4)

_KEEP_PROB = 0.1
_MASK_PROB = 0.8  # the rest is replaced by a random piece

# The bits that hold a word's number within its row while words are sorted.
_NUMBER = np.uint64(2**24 - 1)

# More words than any row has.
_ALL = 2**24


class MaskingIds(NamedTuple):
    """The ids of a vocabulary that masking needs."""

    special: Sequence[int]  # of tokens that are never masked
    mask: int
    replacements: np.ndarray  # [n] from which random replacements are drawn

    @classmethod
    def of(cls, tokenizer: Any) -> "MaskingIds":
        """Returns the ids of a tokenizer."""
        return cls(
            tokenizer.special_ids, tokenizer.mask_id, tokenizer.replacement_ids
        )


class MaskedBatch(NamedTuple):
    """A masked batch: the inputs and the targets."""

    input_ids: np.ndarray  # [batch, seq] int32
    masked_lm_positions: np.ndarray  # [batch, slots] int32, ascending
    masked_lm_ids: np.ndarray  # [batch, slots] int32
    masked_lm_weights: np.ndarray  # [batch, slots] float32, 1 or 0
    ngram_counts: np.ndarray  # [max_ngram + 1] how many n-grams of n words

    @property
    def features(self) -> dict[str, np.ndarray]:
        """The features of a static record that masking makes."""
        features = self._asdict()
        del features["ngram_counts"]
        return features

    def counts(self, mask_id: int) -> dict[str, int]:
        """Returns counts of the masked tokens and n-grams, by name."""
        rows = np.arange(len(self.input_ids))[:, None]
        shown = self.input_ids[rows, self.masked_lm_positions]
        real = self.masked_lm_weights > 0
        as_mask = int((real & (shown == mask_id)).sum())
        as_is = int((real & (shown == self.masked_lm_ids)).sum())
        masked = int(real.sum())
        counts = {
            "masked_tokens": masked,
            "masked_tokens/as_mask": as_mask,
            "masked_tokens/as_is": as_is,
            "masked_tokens/as_random": masked - as_mask - as_is,
        }
        for n, count in enumerate(self.ngram_counts[1:].tolist(), start=1):
            counts[f"masked_ngrams/{n}"] = count
        return counts


class _Words(NamedTuple):
    """The words of a batch, row after row, in flat arrays."""

    row: np.ndarray  # [words] which sequence
    number: np.ndarray  # [words] in its row
    start: np.ndarray  # [words] first token
    size: np.ndarray  # [words] tokens
    words_left: np.ndarray  # [words] to the end of the run, this one included
    first: np.ndarray  # [batch + 1] index of a row's first word


class _Cells(NamedTuple):
    """The words of a batch in a grid, whose rows end with empty cells."""

    of_word: np.ndarray  # [words] cell of each word
    by_rank: np.ndarray  # [ranks, batch] cells of a row in random order
    tokens_before: np.ndarray  # [cells + 1] tokens of all words before a cell
    at_token: np.ndarray  # [tokens + 1] cell of each of these tokens
    run_left: np.ndarray  # [cells] words to the end of the run, 0: empty


def mask_batch(
    columns: Mapping[str, np.ndarray],
    keys: np.ndarray,
    *,
    config: MaskingConfig,
    num_slots: int,
    ids: MaskingIds,
) -> MaskedBatch:
    """Returns the batch with n-grams of whole words masked.

    The length n of each n-gram is drawn with p(n) ~ 1/n (or ~ n); it begins
    at the first word, in a random order of the words, where n words of one
    segment are free. The rest of the budget may shorten the last one. A token
    of a chosen n-gram becomes [MASK] with 0.8, stays with 0.1 and becomes a
    random piece with 0.1. The budget of a row is `masked_lm_prob` of its
    length, and at least 1; it is met to the token if whole words can make
    that sum, and else as far as they can.

    Args:
        columns: `input_ids`, `input_mask`, `segment_ids` and `word_starts`,
            each `[batch, seq]`.
        keys: `[batch]` uint64, see `counter_rng`.
        config: but for its max_predictions_per_seq.
        num_slots: P, the most tokens masked in a row.
    """
    input_ids = columns["input_ids"]
    word_starts = columns["word_starts"].astype(bool)
    if not config.whole_word_masking:
        word_starts = np.ones_like(word_starts)
    # Differs from google-research/albert: <unk> is special too; to predict it
    # teaches nothing.
    is_token = columns["input_mask"].astype(bool)
    maskable = is_token & ~np.isin(input_ids, ids.special)
    words = _find_words(word_starts, columns["segment_ids"], maskable)
    lengths = is_token.sum(axis=1)
    budgets = np.maximum(1, np.rint(config.masked_lm_prob * lengths))
    budgets = np.minimum(num_slots, budgets).astype(np.int64)
    chosen, ngram_counts = _choose_words(words, keys, budgets, config)
    row, position = _tokens_of(words, chosen)

    masked_ids = np.array(input_ids, np.int32)
    original_ids = masked_ids[row, position]
    masked_ids[row, position] = _shown_ids(
        original_ids, keys, row, position, ids
    )
    per_row = np.bincount(row, minlength=len(input_ids))
    in_use = np.arange(num_slots) < per_row[:, None]
    return MaskedBatch(
        masked_ids,
        _in_slots(in_use, position),
        _in_slots(in_use, original_ids),
        in_use.astype(np.float32),
        ngram_counts,
    )


def _in_slots(in_use: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns int32 `[batch, slots]` with `values` in the slots in use."""
    slots = np.zeros(in_use.shape, np.int32)
    slots[in_use] = values
    return slots


def _shown_ids(
    original_ids: np.ndarray,
    keys: np.ndarray,
    row: np.ndarray,
    position: np.ndarray,
    ids: MaskingIds,
) -> np.ndarray:
    """Returns the input ids of chosen tokens; but for `keys` all are `[n]`."""
    action, draw = (
        counter_rng.uniform_at(counter_rng.fold_in(keys, stream)[row], position)
        for stream in (_ACTION, _REPLACEMENT)
    )
    # Differs from google-research/albert, which draws replacements from the
    # whole vocabulary, [CLS], [SEP] and <pad> included.
    number = (draw * len(ids.replacements)).astype(np.int64)
    shown = np.where(
        action < _MASK_PROB + _KEEP_PROB, original_ids, ids.replacements[number]
    )
    return np.where(action < _MASK_PROB, ids.mask, shown)


def _find_words(
    word_starts: np.ndarray, segment_ids: np.ndarray, maskable: np.ndarray
) -> _Words:
    """Returns the words: maximal, within one run of text of one segment.

    Differs from google-research/albert, where a piece behind [SEP] that does
    not start a word is glued to the last word of the segment before.
    """
    continues_run = np.zeros_like(maskable)
    continues_run[:, 1:] = (
        maskable[:, 1:]
        & maskable[:, :-1]
        & (segment_ids[:, 1:] == segment_ids[:, :-1])
    )
    begins_run = maskable & ~continues_run
    begins_word = begins_run | (maskable & word_starts)
    ends_word = maskable.copy()
    ends_word[:, :-1] &= begins_word[:, 1:] | ~continues_run[:, 1:]

    begin = np.flatnonzero(begins_word)
    row, start = np.divmod(begin, maskable.shape[1])
    size = np.flatnonzero(ends_word) - begin + 1
    first = np.searchsorted(row, np.arange(len(maskable) + 1))
    word = np.arange(len(row))
    starts_run = begins_run.ravel()[begin]
    run_borders = np.append(np.flatnonzero(starts_run), len(row))
    words_left = run_borders[np.cumsum(starts_run)] - word
    return _Words(row, word - first[row], start, size, words_left, first)


def _choose_words(
    words: _Words, keys: np.ndarray, budgets: np.ndarray, config: MaskingConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a mask of the chosen words and counts of n-grams by length.

    The mask is bool `[words]`, the counts are int64 `[max_ngram + 1]`.
    """
    order = _random_order(words, keys)
    cells = _grid(words, order, config.max_ngram)
    ngrams = _draw_ngrams(keys, int(budgets.max(initial=1)), config)
    free, remaining = cells.run_left.copy(), budgets.copy()
    ngram_counts = np.zeros(config.max_ngram + 1, np.int64)
    # Differs from google-research/albert, which may end below its budget:
    # what no n-gram filled is filled with single words.
    for lengths in (ngrams, np.ones_like(ngrams)):
        _fill_budgets(cells, lengths, remaining, free, ngram_counts)
    chosen = free[cells.of_word] == 0
    for row in np.flatnonzero(remaining).tolist():
        _complete_row(words, order[row], row, budgets[row], chosen)
    return chosen, ngram_counts


def _random_order(words: _Words, keys: np.ndarray) -> np.ndarray:
    """Returns `[batch, words of the longest row]`: a row's words, shuffled.

    An entry is the word's number within its row. A row's unused end holds the
    number of words of the longest row.
    """
    width = int(words.number.max(initial=-1)) + 1
    bits = counter_rng.random_bits(
        counter_rng.fold_in(keys, _ORDER)[words.row], words.start
    )
    # The lowest bits of the sorted values hold the word's number, which makes
    # sorting cheap and its result unique.
    ranks = np.full((len(keys), width), np.iinfo(np.uint64).max)
    ranks[words.row, words.number] = (bits & ~_NUMBER) | words.number.astype(
        np.uint64
    )
    ranks.sort(axis=1)
    return np.minimum((ranks & _NUMBER).astype(np.int64), width)


def _grid(words: _Words, order: np.ndarray, longest: int) -> _Cells:
    """Returns the words in a grid that separates rows by `longest` cells."""
    batch, width = order.shape
    rows = np.arange(batch) * (width + longest)
    num_cells = batch * (width + longest)
    of_word = rows[words.row] + words.number
    sizes, run_left = np.zeros((2, num_cells), np.int64)
    sizes[of_word] = words.size
    run_left[of_word] = words.words_left
    return _Cells(
        of_word,
        np.ascontiguousarray(order.T + rows),
        np.append(0, np.cumsum(sizes)),
        np.append(np.repeat(of_word, words.size), num_cells),
        run_left,
    )


def _draw_ngrams(
    keys: np.ndarray, number: int, config: MaskingConfig
) -> np.ndarray:
    """Returns the lengths `[batch, number]` of a row's n-grams, in words."""
    weights = np.arange(1, config.max_ngram + 1, dtype=np.float64)
    if config.favor_shorter_ngram:
        weights = 1.0 / weights
    cumulative = np.cumsum(weights)
    draw = counter_rng.uniforms(counter_rng.fold_in(keys, _NGRAM), number)
    draw *= cumulative[-1]
    return 1 + np.searchsorted(cumulative[:-1], draw, "right")


def _fill_budgets(
    cells: _Cells,
    ngrams: np.ndarray,
    remaining: np.ndarray,
    free: np.ndarray,
    ngram_counts: np.ndarray,
) -> None:
    """Chooses the n-grams that fit; updates the last three arrays.

    `free` `[cells]` counts the words from a cell on up to the next one that is
    chosen or belongs to another run. All rows look at their word of the same
    rank at once; where nothing fits, they choose an n-gram of no words.

    Differs from google-research/albert, where each position draws its own n
    and long n-grams, which fit less often, come out too rare: here a length
    that was drawn waits for the first position where it fits.
    """
    longest = len(ngram_counts) - 1
    # What remains free around an n-gram of n words, by n and offset.
    around = np.arange(1 - longest, longest)
    still_free = np.where(
        around < np.arange(longest + 1)[:, None], np.maximum(-around, 0), _ALL
    )
    still_free[0] = _ALL
    # The n-gram that each row draws next.
    drawn = np.arange(0, ngrams.size, ngrams.shape[1])
    for word in cells.by_rank:
        if not remaining.any():
            break
        ngram = ngrams.take(drawn, mode="clip")
        limit = cells.tokens_before[word] + remaining
        length = cells.at_token.take(limit, mode="clip") - word
        np.minimum(length, ngram, out=length)
        fits = (ngram <= cells.run_left[word]) & (length <= free[word])
        length *= fits
        np.subtract(limit, cells.tokens_before[word + length], out=remaining)
        drawn += length > 0
        neighbours = word[:, None] + around
        free[neighbours] = np.minimum(free[neighbours], still_free[length])
        ngram_counts += np.bincount(length, minlength=longest + 1)
    ngram_counts[0] = 0


def _complete_row(
    words: _Words,
    order: np.ndarray,
    row: int,
    budget: int,
    chosen: np.ndarray,
) -> None:
    """Chooses other words of a row if those fill its budget better.

    Rarely called: where every word that is left is too long for what is left.
    Solves a subset-sum problem over the lengths of words; words already chosen
    come first, so that they are kept where possible.
    """
    first, end = words.first[row], words.first[row + 1]
    if chosen[first:end].all():
        return
    candidates = first + order[: end - first]
    candidates = candidates[np.argsort(~chosen[candidates], kind="stable")]
    # For every sum that words can make, the last word of it.
    last_word = {0: -1}
    for word in candidates.tolist():
        size = int(words.size[word])
        for total in sorted(last_word, reverse=True):
            if total + size <= budget:
                last_word.setdefault(total + size, word)
        if budget in last_word:
            break
    chosen[first:end] = False
    total = max(last_word)
    while total:
        word = last_word[total]
        chosen[word] = True
        total -= int(words.size[word])


def _tokens_of(
    words: _Words, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns row and position of every token of the chosen words, in order."""
    start, sizes = words.start[chosen], words.size[chosen]
    row = np.repeat(words.row[chosen], sizes)
    before = np.cumsum(sizes) - sizes
    position = np.arange(len(row)) + np.repeat(start - before, sizes)
    return row, position
