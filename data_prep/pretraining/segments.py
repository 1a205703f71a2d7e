"""Cuts documents into instances: pairs of segments, or single segments.

`SENTENCE_OBJECTIVES` has a row for each way: sentence order (paper, section
3.1, inter-sentence coherence loss), next sentence (BERT) and none. A row's
function says which tokens an instance takes, as spans of one flat array, and
depends on the documents and a key alone.

Differs from google-research/albert: the length is drawn per instance, not per
document; nothing is truncated, what finds no room begins the next instance;
and no segment comes from a random document under sentence order, where a
label 1 would be given away by its topic.
"""

import bisect
import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.records import counter_rng

# What an instance draws, counted under its key.
(
    _IS_SHORT,
    _LENGTH,
    _SPLIT,
    _LABEL,
    _PARTNER,
    _PARTNER_SENTENCE,
    _NUM_DRAWS,
) = range(7)


class Instance(NamedTuple):
    """Two spans of tokens, in the order in which the model reads them."""

    first_begin: int
    first_end: int
    second_begin: int  # the second span of a single segment is empty
    second_end: int
    label: int  # 0: as in the text; 1: swapped, or of another document
    key: int  # unique to the instance


class TokenizedDocument(NamedTuple):
    """Where a document's sentences lie in the flat array of tokens.

    Sentence i is tokens `borders[i]` to `borders[i + 1]`, none is empty.
    """

    name: str
    borders: Sequence[int]
    key: np.uint64


class CutSettings(NamedTuple):
    """What the rows share."""

    max_seq_length: int
    short_seq_prob: float
    num_copies: int


class _Step(NamedTuple):
    """An instance's spans and label, and where the text goes on after it."""

    first: tuple[int, int]
    second: tuple[int, int]
    label: int
    resume: int


# What an objective does at a position of the text, with an instance's draws.
_StepFunction = Callable[[int, Sequence[float]], _Step]


@dataclasses.dataclass(frozen=True)
class SentenceObjective:
    """One way to cut documents.

    Attributes:
        name: what the setting says.
        num_special_tokens: [CLS] and the [SEP]s.
        needs_other_documents: whether an instance may take a segment from
            another document.
        step_function: returns the objective's steps through a document, None
            if it has no instance, which is counted.
    """

    name: str
    num_special_tokens: int
    needs_other_documents: bool
    step_function: Callable[..., _StepFunction | None]


def cut_document(
    objective: SentenceObjective,
    documents: Sequence[TokenizedDocument],
    number: int,
    word_starts: np.ndarray,
    settings: CutSettings,
    counts: Counter[str],
) -> Iterator[Instance]:
    """Yields the instances of `documents[number]`, copy after copy.

    Args:
        objective: a row of SENTENCE_OBJECTIVES.
        documents: the unit, whose other documents may lend segments.
        number: which of them.
        word_starts: of the flat array of tokens; long sentences are cut
            where a word starts.
        settings: lengths and copies.
        counts: is told of what was skipped or repeated.
    """
    document = documents[number]
    most = settings.max_seq_length - objective.num_special_tokens
    step = objective.step_function(
        documents, number, word_starts, settings, most, counts
    )
    if step is None:
        return
    begin, end = document.borders[0], document.borders[-1]
    draws_of = _Draws(
        document.key, settings.num_copies, 4 + (end - begin) * 5 // (4 * most)
    )
    for draws_of_copy in draws_of.of_copies():
        position = begin
        while position < end:
            key, draws = next(draws_of_copy)
            first, second, label, position = step(position, draws)
            yield Instance(*first, *second, label, key)


# Draws that are made at a time, in rows of an instance's.
_MOST_ROWS = 10_000


class _Draws:
    """The random numbers of a document's instances, made in blocks.

    Instance n of copy c draws under a key made of the document's, c and n.

    Args:
        key: the document's.
        num_copies: how many copies there are.
        likely_count: about how many instances a copy has.
    """

    def __init__(
        self, key: np.uint64, num_copies: int, likely_count: int
    ) -> None:
        self._copy_keys = counter_rng.fold_in(key, np.arange(num_copies))
        self._size = min(likely_count, _MOST_ROWS)
        # For a short document, one block serves several copies.
        self._copies_at_once = max(1, _MOST_ROWS // self._size)

    def of_copies(self) -> Iterator[Iterator[tuple[int, list[float]]]]:
        """Yields, copy after copy, the keys and draws of its instances."""
        for begin in range(0, len(self._copy_keys), self._copies_at_once):
            copy_keys = self._copy_keys[begin : begin + self._copies_at_once]
            rows = self._rows(copy_keys, 0)
            for number, copy_key in enumerate(copy_keys):
                first = rows[number * self._size : (number + 1) * self._size]
                yield itertools.chain(first, self._more(copy_key))

    def _more(self, copy_key: np.uint64) -> Iterator[tuple[int, list[float]]]:
        for begin in itertools.count(self._size, self._size):
            yield from self._rows(copy_key[None], begin)

    def _rows(
        self, copy_keys: np.ndarray, begin: int
    ) -> list[tuple[int, list[float]]]:
        """Returns keys and draws of `size` instances of each copy."""
        numbers = np.arange(begin, begin + self._size)
        keys = counter_rng.fold_in(
            np.repeat(copy_keys, self._size), np.tile(numbers, len(copy_keys))
        )
        draws = counter_rng.uniforms(keys, _NUM_DRAWS)
        return list(zip(keys.tolist(), draws.tolist(), strict=True))


def _target_length(
    draws: Sequence[float], most: int, settings: CutSettings
) -> int:
    if draws[_IS_SHORT] < settings.short_seq_prob:
        return 2 + int(draws[_LENGTH] * (most - 1))
    return most


def _pick(draw: float, begin: int, end: int) -> int:
    """Returns an integer of range(begin, end)."""
    return begin + int(draw * (end - begin))


def _near_word_start(place: int, low: int, word_starts: np.ndarray) -> int:
    """Returns the last word start in (low, place]; `place` if there is none."""
    found = np.flatnonzero(word_starts[low + 1 : place + 1])
    return low + 1 + int(found[-1]) if found.size else place


class _Chunk(NamedTuple):
    """Tokens for a pair of segments and where they may be parted."""

    begin: int
    split: int
    end: int
    resume: int  # where the text goes on after the chunk


def _pair_chunk(
    borders: Sequence[int],
    position: int,
    target: int,
    most: int,
    draw: float,
    word_starts: np.ndarray,
) -> _Chunk:
    """Returns the chunk that begins at `position`, of at most `most` tokens.

    It has as many whole sentences as the target holds, at least two. Where
    two are too long, the second is cut; a single one too long for a chunk is
    cut and parted in its middle. A sentence left alone at the end of the
    document gets the text in front of it for company, which so is in two
    instances.
    """
    document_end = borders[-1]
    following = bisect.bisect_right(borders, position)
    # One sentence, or what a cut left of it, up to the end of the document.
    left_alone = following == len(borders) - 1
    if left_alone and document_end - position < most:
        if position == borders[0]:
            # Of one sentence, which its caller has seen to.
            raise ValueError("A document of one short sentence has no pair.")
        begin = borders[bisect.bisect_left(borders, position) - 1]
        if document_end - begin > most:
            begin = document_end - most
            whole_words = np.flatnonzero(word_starts[begin:position])
            begin += int(whole_words[0]) if whole_words.size else 0
        return _Chunk(begin, position, document_end, document_end)
    last = bisect.bisect_right(borders, position + target) - 1
    last = max(last, min(following + 1, len(borders) - 1))
    end = borders[last]
    if end - position > most:
        last = bisect.bisect_right(borders, position + most) - 1
        end = _near_word_start(
            position + most, position + most // 2, word_starts
        )
        # The sentence before the cut stays whole.
        end = max(end, borders[last])
        splits = range(following, last + 1 if borders[last] < end else last)
    else:
        splits = range(following, last)
    if len(splits):
        split = borders[_pick(draw, splits.start, splits.stop)]
    else:
        half = position + (end - position) // 2
        split = _near_word_start(half, position, word_starts)
    return _Chunk(position, split, end, end)


def _has_pair(
    document: TokenizedDocument, most: int, counts: Counter[str]
) -> bool:
    """Returns whether the document can be parted at all; counts if not."""
    borders = document.borders
    if len(borders) > 2 or borders[-1] - borders[0] >= most:
        return True
    reason = "single_sentence" if len(borders) == 2 else "empty"
    counts[f"skipped/{reason}_documents"] += 1
    counts["skipped/tokens"] += borders[-1] - borders[0]
    return False


def _sentence_order(
    documents: Sequence[TokenizedDocument],
    number: int,
    word_starts: np.ndarray,
    settings: CutSettings,
    most: int,
    counts: Counter[str],
) -> _StepFunction | None:
    """Returns steps to pairs of consecutive segments, half of them swapped.

    Both come from one document, always. One of a single sentence has no
    order to judge.
    """
    document = documents[number]
    if not _has_pair(document, most, counts):
        return None

    def step(position: int, draws: Sequence[float]) -> _Step:
        begin, split, end, resume = _pair_chunk(
            document.borders,
            position,
            _target_length(draws, most, settings),
            most,
            draws[_SPLIT],
            word_starts,
        )
        counts["repeated_tokens"] += position - begin
        if draws[_LABEL] < 0.5:
            return _Step((split, end), (begin, split), 1, resume)
        return _Step((begin, split), (split, end), 0, resume)

    return step


def _next_sentence(
    documents: Sequence[TokenizedDocument],
    number: int,
    word_starts: np.ndarray,
    settings: CutSettings,
    most: int,
    counts: Counter[str],
) -> _StepFunction | None:
    """Returns steps to pairs, the second half of the time of another document.

    As in BERT the text that the other document's segment took the place of
    begins the next instance. Without another document all pairs are real.
    """
    document = documents[number]
    if not _has_pair(document, most, counts):
        return None
    partners = [
        other
        for other in documents
        if other.name != document.name and len(other.borders) > 1
    ]

    def step(position: int, draws: Sequence[float]) -> _Step:
        begin, split, end, resume = _pair_chunk(
            document.borders,
            position,
            _target_length(draws, most, settings),
            most,
            draws[_SPLIT],
            word_starts,
        )
        is_random = draws[_LABEL] < 0.5
        if is_random and not partners:
            counts["without_other_document"] += 1
        if not is_random or not partners:
            counts["repeated_tokens"] += position - begin
            return _Step((begin, split), (split, end), 0, resume)
        if begin < position:  # left alone; now it gets other company
            begin, split, end = position, end, end + split - begin
        other = partners[_pick(draws[_PARTNER], 0, len(partners))]
        segment = _random_segment(
            other.borders,
            draws[_PARTNER_SENTENCE],
            end - split,
            most - (split - begin),
        )
        return _Step((begin, split), segment, 1, split)

    return step


def _random_segment(
    borders: Sequence[int], draw: float, target: int, most: int
) -> tuple[int, int]:
    """Returns whole sentences from a random one on, cut at `most` tokens."""
    first = _pick(draw, 0, len(borders) - 1)
    last = bisect.bisect_right(borders, borders[first] + target) - 1
    end = borders[max(last, first + 1)]
    return borders[first], min(end, borders[first] + most)


def _single_segments(
    documents: Sequence[TokenizedDocument],
    number: int,
    word_starts: np.ndarray,
    settings: CutSettings,
    most: int,
    counts: Counter[str],
) -> _StepFunction | None:
    """Returns steps to runs of sentences."""
    borders = documents[number].borders
    if len(borders) < 2:
        counts["skipped/empty_documents"] += 1
        return None

    def step(position: int, draws: Sequence[float]) -> _Step:
        target = _target_length(draws, most, settings)
        end = borders[bisect.bisect_right(borders, position + target) - 1]
        if end <= position:
            end = borders[bisect.bisect_right(borders, position)]
        if end - position > most:
            end = _near_word_start(
                position + most, position + most // 2, word_starts
            )
        return _Step((position, end), (end, end), 0, end)

    return step


SENTENCE_OBJECTIVES: dict[str, SentenceObjective] = {
    row.name: row
    for row in (
        SentenceObjective("sop", 3, False, _sentence_order),
        SentenceObjective("nsp", 3, True, _next_sentence),
        SentenceObjective("none", 2, False, _single_segments),
    )
}
