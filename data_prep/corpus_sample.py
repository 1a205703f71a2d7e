"""Draws a few documents to learn from them how large the records will be.

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
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

_NUM_DOCUMENTS = 24
# Of a document so much is kept.
_EXCERPT_CHARS = 15_000


class SampledDocument(NamedTuple):
    """The head of a document."""

    priority: float
    name: str
    num_characters: int  # of the whole document
    paragraphs: tuple[str, ...]


class CorpusSample:
    """The documents of the highest priorities among those added."""

    def __init__(self, documents: Iterable[SampledDocument] = ()) -> None:
        self._kept = list(documents)
        heapq.heapify(self._kept)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CorpusSample) and (
            sorted(self._kept) == sorted(other._kept)
        )

    def add(self, name: str, paragraphs: Iterable[str]) -> None:
        """Takes a document in, or not."""
        size = sum(map(len, paragraphs))
        digest = hashlib.blake2b(
            name.encode("utf-8", "surrogatepass"), digest_size=8
        ).digest()
        priority = size / ((int.from_bytes(digest, "little") + 1) / 2**64)
        if len(self._kept) > _NUM_DOCUMENTS:
            if priority <= self._kept[0].priority:
                return
            heapq.heappop(self._kept)
        excerpt = tuple(head(paragraphs, _EXCERPT_CHARS))
        heapq.heappush(
            self._kept, SampledDocument(priority, name, size, excerpt)
        )

    def merge(self, other: "CorpusSample") -> None:
        """Takes in what another sample holds."""
        for document in other._kept:
            heapq.heappush(self._kept, document)
            if len(self._kept) > _NUM_DOCUMENTS + 1:
                heapq.heappop(self._kept)

    def weighted_documents(self) -> list[tuple[float, SampledDocument]]:
        """Returns the sample, each with the characters it stands for."""
        documents = sorted(self._kept, reverse=True)
        least = 0.0
        if len(documents) > _NUM_DOCUMENTS:
            least = documents.pop().priority
        return [
            (max(least, document.num_characters), document)
            for document in documents
        ]

    def to_json(self) -> list[list[Any]]:
        """Returns what `from_json` takes."""
        return [list(document) for document in sorted(self._kept)]

    @classmethod
    def from_json(cls, rows: Iterable[Iterable[Any]]) -> "CorpusSample":
        """Returns the sample that `to_json` described."""
        documents = (SampledDocument(*row) for row in rows)
        return cls(
            d._replace(paragraphs=tuple(d.paragraphs)) for d in documents
        )


def head(paragraphs: Iterable[str], num_characters: int) -> Iterator[str]:
    """Yields paragraphs, the last cut, of so many characters together."""
    for paragraph in paragraphs:
        yield paragraph[:num_characters]
        num_characters -= len(paragraph)
        if num_characters <= 0:
            return
