"""Samples documents, to train the sentence splitter and estimate sizes.

Main entry: `CorpusSample`. It is priority sampling (Duffield, Lund and
Thorup, Journal of the ACM 2007): each document has the priority size / u with
u uniform in (0, 1], and the highest priorities are kept. A document stands
for max(its size, the highest priority that was not kept) characters, so that
sums over the sample are unbiased whatever the sizes: thousands of one-liners
before a few books do not hide the books. u is a hash of the name, so the
sample depends on the corpus alone, and samples can be merged.
"""

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

# Punkt reads about half a million characters a second.
SAMPLE_CHARS = 1_000_000
# Characters of a document that are kept.
_EXCERPT_CHARS = 15_000
# Minimum size that a document counts for, so that there are not too many.
_MIN_CHARS = 200


class SampledDocument(NamedTuple):
    """The head of a document."""

    priority: float
    name: str
    num_characters: int  # the whole document's
    paragraphs: tuple[str, ...]


class CorpusSample:
    """The documents of the highest priorities: excerpts of SAMPLE_CHARS.

    One more is kept, of the highest priority that is not in the sample.
    """

    def __init__(self, documents: Iterable[SampledDocument] = ()) -> None:
        self._kept: list[SampledDocument] = []
        self._num_characters = 0
        for document in documents:
            self._push(document)

    def add(self, name: str, paragraphs: Sequence[str]) -> None:
        """Adds a document if its priority is high enough."""
        size = sum(map(len, paragraphs))
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        priority = size / ((int.from_bytes(digest, "little") + 1) / 2**64)
        if not self._is_full() or priority > self._kept[0].priority:
            excerpt = tuple(_head(paragraphs, _EXCERPT_CHARS))
            self._push(SampledDocument(priority, name, size, excerpt))

    def _is_full(self) -> bool:
        """Returns whether the sample is complete without the lowest."""
        if not self._kept:
            return False
        rest = self._num_characters - _excerpt_size(self._kept[0])
        return rest >= SAMPLE_CHARS

    def merge(self, other: "CorpusSample") -> None:
        """Adds the documents of another sample."""
        for document in other._kept:
            self._push(document)

    def _push(self, document: SampledDocument) -> None:
        """Adds a document; those below the bound are dropped."""
        heapq.heappush(self._kept, document)
        self._num_characters += _excerpt_size(document)
        # The sample is complete without the lowest, which is no part of it, and
        # it still is without the next one.
        while len(self._kept) > 2:
            lowest, next_one = self._kept[0], min(self._kept[1:3])
            rest = self._num_characters - _excerpt_size(lowest)
            if rest - _excerpt_size(next_one) < SAMPLE_CHARS:
                return
            heapq.heappop(self._kept)
            self._num_characters = rest

    def weighted_documents(
        self, num_characters: int
    ) -> list[tuple[float, SampledDocument]]:
        """Returns a sample: documents and the characters each represents.

        The sample has about `num_characters`, at most SAMPLE_CHARS.
        """
        documents = sorted(self._kept, reverse=True)
        least = 0.0
        left = num_characters
        for number, document in enumerate(documents):
            if left <= 0:
                least = document.priority
                documents = documents[:number]
                break
            left -= _excerpt_size(document)
        return [
            (max(least, document.num_characters), document)
            for document in documents
        ]

    def texts(self) -> list[str]:
        """Returns the excerpts, in the order of their names."""
        documents = sorted(self._kept, key=lambda row: (row.name, row))
        return ["\n\n".join(document.paragraphs) for document in documents]

    def to_json(self) -> list[list[Any]]:
        """Returns the rows that `from_json` takes."""
        return [list(document) for document in sorted(self._kept)]

    @classmethod
    def from_json(cls, rows: Iterable[Iterable[Any]]) -> "CorpusSample":
        """Returns the sample of rows from `to_json`."""
        return cls(
            SampledDocument(*row, tuple(paragraphs))
            for *row, paragraphs in rows
        )


def _head(paragraphs: Iterable[str], num_characters: int) -> Iterator[str]:
    """Yields paragraphs up to a number of characters; the last is cut."""
    for paragraph in paragraphs:
        yield paragraph[:num_characters]
        num_characters -= len(paragraph)
        if num_characters <= 0:
            return


def _excerpt_size(document: SampledDocument) -> int:
    return max(_MIN_CHARS, sum(map(len, document.paragraphs)))
