"""N-gram masking of a batch of sequences (paper, section 4.1, equation 1).

`mask_batch` serves both readers of dynamic records and writers of static
ones. It follows google-research/albert's create_masked_lm_predictions with
its faults removed; each removal is marked "Differs from" below. What happens
to a row depends on the row and its key alone: not on the other rows, not on
padding.

The words of the whole batch lie in a grid with a row for each sequence. The
one loop goes over the rank of a candidate within its row; every operation of
it is on all rows at once.
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

# More words than any row has: no limit of words, and the bits that hold a
# word's number within its row while words are sorted.
_NO_LIMIT = 2**24 - 1
_NUMBER_BITS = np.uint64(_NO_LIMIT)


class MaskingIds(NamedTuple):
    """The ids of a vocabulary that masking needs."""

    special: Sequence[int]  # ids of tokens that are never masked
    mask: int
    replacements: np.ndarray  # [n] from which random replacements are drawn
    # [vocab] of each piece: words are drawn in proportion to the mean of
    # theirs; None: all alike.
    weights: np.ndarray | None = None

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> "MaskingIds":
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
    # [max_ngram + 1] how many n-grams of n words were chosen, before the words
    # of a row may be exchanged to meet its budget
    ngram_counts: np.ndarray

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
    """The words of a batch, one in each cell of a grid `[batch, width]`.

    Cells are numbered row after row. Behind the words of a row are empty cells,
    at least as many as an n-gram may have words, so that what is done around a
    word reaches no word of another row.
    """

    cell: np.ndarray  # [words] where a word is
    row: np.ndarray  # [words] its sequence
    start: np.ndarray  # [words] its first token
    tokens_before: np.ndarray  # [cells + 1] tokens of the words before a cell
    # [tokens + 1] of tokens that can be masked
    cell_of_token: np.ndarray
    # [batch, width] this one included; 0: empty
    words_to_run_end: np.ndarray


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
    words = _find_words(
        word_starts, columns["segment_ids"], maskable, config.max_ngram
    )
    weights = _word_weights(words, input_ids[maskable], ids.weights)
    lengths = is_token.sum(axis=1)
    budgets = np.maximum(1, np.rint(config.masked_lm_prob * lengths))
    budgets = np.minimum(num_slots, budgets).astype(np.int64)
    chosen, ngram_counts = _choose_words(words, weights, keys, budgets, config)

    masked = np.zeros_like(maskable)
    masked[maskable] = chosen[words.cell_of_token[:-1]]
    row, position = np.divmod(np.flatnonzero(masked), masked.shape[1])
    masked_ids = np.array(input_ids, np.int32)
    original_ids = masked_ids[masked]
    masked_ids[masked] = _shown_ids(original_ids, keys, row, position, ids)
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
    word_starts: np.ndarray,
    segment_ids: np.ndarray,
    maskable: np.ndarray,
    longest: int,
) -> _Words:
    """Returns the words: maximal, within one run of text of one segment.

    `longest` is the most words of an n-gram.

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

    row, start = np.divmod(np.flatnonzero(begins_word), maskable.shape[1])
    in_row = np.bincount(row, minlength=len(maskable))
    width = int(in_row.max(initial=0)) + longest
    is_word = np.arange(width) < in_row[:, None]
    cell = np.flatnonzero(is_word)
    # The cell past the grid stands for what follows the last token.
    begins = np.append(begins_word[maskable], True)
    cells = np.concatenate([[0], cell, [is_word.size]])
    cell_of_token = cells[np.cumsum(begins)]
    sizes = np.bincount(cell_of_token)

    starts_run = begins_run[begins_word]
    borders = np.append(np.flatnonzero(starts_run), len(row))
    words_to_run_end = np.zeros(is_word.shape, np.int64)
    run_ends = borders[np.cumsum(starts_run)]
    words_to_run_end[is_word] = run_ends - np.arange(len(row))
    return _Words(
        cell,
        row,
        start,
        np.cumsum(sizes) - sizes,
        cell_of_token,
        words_to_run_end,
    )


def _word_weights(
    words: _Words, token_ids: np.ndarray, piece_weights: np.ndarray | None
) -> np.ndarray | None:
    """Returns the mean weight `[words]` of each word's pieces, if they have."""
    if piece_weights is None:
        return None
    cells = words.cell_of_token[:-1]
    totals = np.bincount(cells, piece_weights[token_ids])
    return (totals / np.maximum(np.bincount(cells), 1))[words.cell]


def _choose_words(
    words: _Words,
    weights: np.ndarray | None,
    keys: np.ndarray,
    budgets: np.ndarray,
    config: MaskingConfig,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a mask of the chosen words and counts of n-grams by length.

    The mask is bool `[cells]`, the counts are int64 `[max_ngram + 1]`.
    """
    order = _random_order(words, weights, keys, config.max_ngram)
    ngrams = _draw_ngrams(keys, int(budgets.max(initial=1)), config)
    free, remaining = words.words_to_run_end.flatten(), budgets.copy()
    ngram_counts = np.zeros(config.max_ngram + 1, np.int64)
    # Differs from google-research/albert, which may end below its budget:
    # what no n-gram filled is filled with single words. And an n-gram does not
    # pass the end of a segment: there it would be cut, so that the last words
    # of a segment are masked more often than here.
    for lengths in (ngrams, np.ones_like(ngrams)):
        _fill_budgets(words, order, lengths, remaining, free, ngram_counts)
    ngram_counts[0] = 0  # where nothing fitted
    chosen = (free == 0) & (words.words_to_run_end.ravel() > 0)
    for row in np.flatnonzero(remaining).tolist():
        _complete_row(words, order[:, row], budgets[row], chosen)
    return chosen, ngram_counts


def _random_order(
    words: _Words, weights: np.ndarray | None, keys: np.ndarray, longest: int
) -> np.ndarray:
    """Returns `[ranks, batch]`: the cells of a row's words, shuffled.

    There are as many ranks as the longest row has words. Other rows end with
    an empty cell. With weights each rank is drawn in proportion to those of the
    words that are left (Efraimidis and Spirakis, 2006).
    """
    batch, width = words.words_to_run_end.shape
    order_keys = counter_rng.fold_in(keys, _ORDER)[words.row]
    if weights is None:
        bits = counter_rng.random_bits(order_keys, words.start)
    else:
        draws = counter_rng.uniform_at(order_keys, words.start)
        # Integers of the bits of positive floats are in their order.
        bits = (-np.log1p(-draws) / weights).view(np.uint64)
    ranks = np.full(batch * width, np.iinfo(np.uint64).max)
    # The lowest bits of the sorted values hold the word's number in its row,
    # which makes sorting cheap and its result unique.
    ranks[words.cell] = bits & ~_NUMBER_BITS
    ranks = ranks.reshape(batch, width)
    ranks |= np.arange(width, dtype=np.uint64)
    ranks.sort(axis=1)
    most = width - longest
    order = np.minimum(ranks.T[:most] & _NUMBER_BITS, np.uint64(most))
    order = order.astype(np.int64, order="C")
    order += np.arange(batch) * width
    return order


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
    words: _Words,
    order: np.ndarray,
    ngrams: np.ndarray,
    remaining: np.ndarray,
    free: np.ndarray,
    ngram_counts: np.ndarray,
) -> None:
    """Chooses the n-grams that fit; updates the last three arrays.

    Each row looks at its word of the same rank, and chooses an n-gram that
    begins there, or one of no words.

    Differs from google-research/albert, where each position draws its own n
    and long n-grams, which fit less often, come out too rare: here a length
    that was drawn waits for the first position where it fits.

    Args:
        words: those of the batch.
        order: `[ranks, batch]` cells.
        ngrams: `[batch, number]` lengths in the order in which they are drawn.
        remaining: `[batch]` tokens that are left of the budget.
        free: `[cells]` words from this one on before the next that is chosen
            or belongs to another run.
        ngram_counts: `[max_ngram + 1]` by length.
    """
    longest = int(ngrams.max(initial=1))
    words_to_run_end = words.words_to_run_end.ravel()
    # free_limit[i, n]: an n-gram of n words leaves at most so many free words
    # at offset around[i] from its first word: the distance to it in front of
    # it, 0 within it, no limit behind it or where n is 0.
    around = np.arange(1 - longest, longest)[:, None]
    free_limit = np.where(
        around < np.arange(longest + 1), np.maximum(-around, 0), _NO_LIMIT
    )
    free_limit[:, 0] = _NO_LIMIT
    next_ngram = np.arange(len(ngrams)) * ngrams.shape[1]
    for cells in order:
        if not np.count_nonzero(remaining):
            return
        ngram = ngrams.take(next_ngram, mode="clip")
        # The budget may have room for only some of the n-gram's words.
        end_token = words.tokens_before[cells] + remaining
        length = words.cell_of_token.take(end_token, mode="clip") - cells
        np.minimum(length, ngram, out=length)
        length *= (ngram <= words_to_run_end[cells]) & (length <= free[cells])
        np.subtract(
            end_token, words.tokens_before[cells + length], out=remaining
        )
        next_ngram += np.sign(length)
        near = around + cells
        free[near] = np.minimum(free[near], free_limit.take(length, axis=1))
        ngram_counts += np.bincount(length, minlength=len(ngram_counts))


def _complete_row(
    words: _Words, candidates: np.ndarray, budget: int, chosen: np.ndarray
) -> None:
    """Chooses other words of a row if those fill its budget better.

    Rarely called: where every word that is left is too long for what is left.
    Solves a subset-sum problem over the lengths of words; words already chosen
    come first, so that they are kept where possible.
    """
    candidates = candidates[words.words_to_run_end.ravel()[candidates] > 0]
    if chosen[candidates].all():
        return
    candidates = candidates[np.argsort(~chosen[candidates], kind="stable")]
    sizes = (
        words.tokens_before[candidates + 1] - words.tokens_before[candidates]
    )
    size_of = dict(zip(candidates.tolist(), sizes.tolist(), strict=True))
    # The last word of every sum that words can make.
    last_word = {0: -1}
    for word, size in size_of.items():
        for total in sorted(last_word, reverse=True):
            if total + size <= budget:
                last_word.setdefault(total + size, word)
        if budget in last_word:
            break
    chosen[candidates] = False
    total = max(last_word)
    while total:
        word = last_word[total]
        chosen[word] = True
        total -= size_of[word]
