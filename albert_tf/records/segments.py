"""Cuts a tokenized document into segments of bounded length.

`DocumentCutter` has the operations that sentence objectives are made of (see
sentence_objectives.py). Positions are offsets into one flat array of the
tokens of several documents. What is cut depends on the documents and a key
alone.

Differs from google-research/albert: the length is drawn per instance, not per
document, and nothing is truncated: tokens that do not fit begin the next
instance.
"""

import bisect
import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.config import PretrainingDataConfig
from albert_tf.records import counter_rng

# The largest number of instances that random numbers are made for at a time.
_MAX_BLOCK = 10_000

Span = tuple[int, int]


class Draws(NamedTuple):
    """An instance's random numbers, uniform in [0, 1)."""

    is_short: float
    length: float
    split: float
    label: float
    partner: float
    partner_sentence: float


class TokenizedDocument(NamedTuple):
    """A document as positions in the flat array of tokens.

    Sentence i is tokens `borders[i]` to `borders[i + 1]`, none is empty.
    """

    borders: Sequence[int]
    key: np.uint64


class Instance(NamedTuple):
    """The spans of a pair of segments, or of one, and its label.

    The spans are in the order in which the model reads them; the document's
    next instance begins at `next_begin`.
    """

    first: Span
    second: Span  # empty in a single segment
    label: int
    next_begin: int


@dataclasses.dataclass(eq=False)
class DocumentCutter:
    """Cuts one document, with others from which segments may be taken."""

    documents: Sequence[TokenizedDocument]  # all of the unit of work
    with_text: Sequence[int]  # the numbers of those that are not empty
    number: int  # the document that is cut
    word_starts: np.ndarray  # bool, of the flat array: where words may be cut
    config: PretrainingDataConfig  # lengths and number of copies
    num_segments: int  # segments in an instance
    counts: Counter[str]  # skipped and repeated tokens are added to it

    def __post_init__(self) -> None:
        self.document = self.documents[self.number]
        self.borders = self.document.borders
        # [CLS] and a [SEP] behind each segment take the rest.
        self.max_tokens = self.config.max_seq_length - self.num_segments - 1

    def is_cuttable(self) -> bool:
        """Returns whether there is an instance; counts the tokens if not."""
        borders = self.borders
        num_sentences = len(borders) - 1
        if num_sentences >= self.num_segments:
            return True
        size = borders[-1] - borders[0]
        if num_sentences and size >= self.max_tokens:
            return True
        reason = "single_sentence" if num_sentences else "empty"
        self.counts[f"skipped/{reason}_documents"] += 1
        if self.num_segments > 1:
            self.counts["skipped/tokens"] += size
        return False

    def has_partner(self) -> bool:
        """Returns whether another document has text, as this one has."""
        return len(self.with_text) > 1

    def partner(self, draw: float) -> TokenizedDocument:
        """Returns one of the other documents that have text."""
        index = pick(draw, 0, len(self.with_text) - 1)
        index += index >= bisect.bisect_left(self.with_text, self.number)
        return self.documents[self.with_text[index]]

    def draws(self) -> Iterator[Iterator[tuple[int, Draws]]]:
        """Yields, copy after copy, the keys and draws of its instances.

        Instance n of copy c draws under a key made of the document's, c and n.
        """
        num_tokens = self.borders[-1] - self.borders[0]
        likely_count = 4 + num_tokens * 5 // (4 * self.max_tokens)
        size = min(likely_count, _MAX_BLOCK)
        copies_at_once = max(1, _MAX_BLOCK // size)
        keys = counter_rng.fold_in(
            self.document.key, np.arange(self.config.dupe_factor)
        )
        for begin in range(0, len(keys), copies_at_once):
            block = keys[begin : begin + copies_at_once]
            rows = _draw_block(block, 0, size)
            for number, key in enumerate(block):
                yield itertools.chain(
                    rows[number * size : (number + 1) * size],
                    _more_draws(key, size),
                )

    def target_length(self, draws: Draws) -> int:
        """Returns the length drawn for an instance."""
        if draws.is_short < self.config.short_seq_prob:
            return 2 + int(draws.length * (self.max_tokens - 1))
        return self.max_tokens

    def chunk(self, position: int, draws: Draws) -> tuple[int, int, int]:
        """Returns begin, split and end of a pair; the next begins at the end.

        It begins at `position` and has as many whole sentences as the target
        length holds, at least two. Where two are too long, the second is cut;
        a single one too long for a pair is cut and split in its middle. A
        sentence left alone at the end of the document is joined with the text
        in front of it, which so is in two instances.
        """
        borders, most = self.borders, self.max_tokens
        following = bisect.bisect_right(borders, position)
        left_alone = following == len(borders) - 1
        if left_alone and borders[-1] - position < most:
            end = borders[-1]
            begin = borders[bisect.bisect_left(borders, position) - 1]
            if end - begin > most:
                begin = end - most
                starts = np.flatnonzero(self.word_starts[begin:position])
                begin += int(starts[0]) if starts.size else 0
            return begin, position, end
        target = self.target_length(draws)
        last = bisect.bisect_right(borders, position + target) - 1
        last = max(last, min(following + 1, len(borders) - 1))
        end = borders[last]
        splits = range(following, last)
        if end - position > most:
            last = bisect.bisect_right(borders, position + most) - 1
            # The sentence before the cut stays whole.
            end = max(self._long_end(position), borders[last])
            stop = last + 1 if borders[last] < end else last
            splits = range(following, stop)
        if len(splits):
            split = borders[pick(draws.split, splits.start, splits.stop)]
        else:
            half = position + (end - position) // 2
            split = self._word_start_before(half, position)
        return position, split, end

    def run(self, position: int, draws: Draws) -> Span:
        """Returns a run of sentences from `position` on."""
        target = self.target_length(draws)
        last = bisect.bisect_right(self.borders, position + target) - 1
        end = self.borders[last]
        if end <= position:
            end = self.borders[bisect.bisect_right(self.borders, position)]
        if end - position > self.max_tokens:
            end = self._long_end(position)
        return position, end

    def _long_end(self, position: int) -> int:
        """Returns the end of the part of a long sentence that fits."""
        most = self.max_tokens
        return self._word_start_before(position + most, position + most // 2)

    def _word_start_before(self, position: int, low: int) -> int:
        """Returns the last word start in (low, position], else `position`."""
        found = np.flatnonzero(self.word_starts[low + 1 : position + 1])
        return low + 1 + int(found[-1]) if found.size else position


def pick(draw: float, begin: int, end: int) -> int:
    """Returns the integer of range(begin, end) that a uniform draw selects."""
    return begin + int(draw * (end - begin))


def random_segment(
    borders: Sequence[int], draw: float, target: int, most: int
) -> Span:
    """Returns whole sentences from a random one on, cut at `most` tokens."""
    first = pick(draw, 0, len(borders) - 1)
    last = bisect.bisect_right(borders, borders[first] + target) - 1
    end = borders[max(last, first + 1)]
    return borders[first], min(end, borders[first] + most)


def _more_draws(key: np.uint64, size: int) -> Iterator[tuple[int, Draws]]:
    for begin in itertools.count(size, size):
        yield from _draw_block(np.array([key]), begin, size)


def _draw_block(
    copy_keys: np.ndarray, begin: int, size: int
) -> list[tuple[int, Draws]]:
    """Returns keys and draws of `size` instances of each copy."""
    numbers = np.arange(begin, begin + size)
    keys = counter_rng.fold_in(
        np.repeat(copy_keys, size), np.tile(numbers, len(copy_keys))
    )
    rows = counter_rng.uniforms(keys, len(Draws._fields)).tolist()
    return list(zip(keys.tolist(), map(Draws._make, rows), strict=True))
