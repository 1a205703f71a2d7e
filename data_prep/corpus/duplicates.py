"""Removes exact duplicates from a corpus: `find_duplicates`, then `remove`.

Two passes over the documents. The first writes a digest of each document or
paragraph, with its running number, to files on disk; they are sorted one
after the other, and every occurrence but the first is marked in a bitmap. The
second pass leaves out what is marked. Memory holds a part of one file,
whatever the corpus.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np

from albert_tf.config import UserError
from data_prep.corpus.reading import Document
from data_prep.pretraining.record_maker import UnitDocument

_DIGEST_BYTES = 16
_NUMBER_BYTES = 8
_ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("number", "<u8")])
DIGEST_ROW_BYTES = _ROW.itemsize

_NUM_BUCKETS = 64  # as many files are open at once
# Rows of a bucket that are read at a time, and about the most different ones
# that are in memory.
_CHUNK_ROWS = 2_000_000
_BITMAP_FILE = "duplicates.bitmap"
_BITMAP_CHUNK_BYTES = 1 << 16


def paragraph_digests(document: Document) -> list[bytes]:
    """Returns the digest of every paragraph."""
    return [
        hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
        for text in document.paragraphs
    ]


def document_digest(document: Document) -> bytes:
    """Returns a digest of the paragraphs, whatever the document's name."""
    return hashlib.blake2b(
        b"".join(paragraph_digests(document)), digest_size=_DIGEST_BYTES
    ).digest()


def without_paragraphs(
    document: Document, drop: Collection[int]
) -> Document | None:
    """Returns `document` without the paragraphs numbered in `drop`, from 0.

    None if no paragraph is left. The name stays.
    """
    if not drop:
        return document
    kept = tuple(
        text
        for number, text in enumerate(document.paragraphs)
        if number not in drop
    )
    return Document(document.name, kept) if kept else None


# The digests of a document by which its duplicates are known. A document
# without a paragraph of its own is dropped, so that duplicate documents go
# with duplicate paragraphs.
_DIGESTS: dict[str, Callable[[Document], list[bytes]]] = {
    "documents": lambda document: [document_digest(document)],
    "paragraphs": paragraph_digests,
}


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """What is a duplicate in a corpus, see `find_duplicates`.

    Attributes:
        level: `documents` or `paragraphs`, which are numbered in their order.
        num_items: how many there are.
        bitmap_path: a file with a bit for each, the lowest first; 1 is a
            duplicate.
    """

    level: str
    num_items: int
    bitmap_path: str

    def remove(
        self, items: Iterable[UnitDocument], counts: Counter[str]
    ) -> Iterator[UnitDocument]:
        """Yields `items` without the duplicates.

        Args:
            items: with the documents that `find_duplicates` saw, in the same
                order.
            counts: is told of `duplicate_documents`, those that are dropped;
                `duplicate_paragraphs`, those dropped from documents that
                stay; and `duplicate_characters`, of both.

        Raises:
            UserError: if there are more or fewer documents or paragraphs.
        """
        with contextlib.closing(self._marks()) as marks:
            num_items = 0
            for item in items:
                document = item.document
                whole = self.level == "documents"
                size = 1 if whole else len(document.paragraphs)
                num_items += size
                drop = [
                    number
                    for number, mark in enumerate(itertools.islice(marks, size))
                    if mark
                ]
                if drop and whole:
                    drop = range(len(document.paragraphs))
                kept = without_paragraphs(document, drop)
                if drop:
                    _count(document, drop, counts)
                if kept is not None:
                    yield item._replace(document=kept)
        if num_items != self.num_items:
            raise UserError(
                f"The input has changed while it was read: {num_items} "
                f"{self.level} instead of {self.num_items}; start again."
            )

    def _marks(self) -> Iterator[int]:
        """Yields 1 for every item that is a duplicate and 0 for others."""
        with open(self.bitmap_path, "rb") as file:
            while data := file.read(_BITMAP_CHUNK_BYTES):
                bits = np.frombuffer(data, np.uint8)
                yield from np.unpackbits(bits, bitorder="little").tolist()


def _count(
    document: Document, drop: Collection[int], counts: Counter[str]
) -> None:
    if len(drop) == len(document.paragraphs):
        counts["duplicate_documents"] += 1
    else:
        counts["duplicate_paragraphs"] += len(drop)
    counts["duplicate_characters"] += sum(
        len(document.paragraphs[number]) for number in drop
    )


def find_duplicates(
    documents: Iterable[Document], level: str, directory: str
) -> Duplicates:
    """Returns what of `documents` has stood before.

    Args:
        documents: the corpus.
        level: `documents`, or `paragraphs`, which takes both.
        directory: for files, some 24 bytes per document or paragraph while
            this is at work, one bit afterwards; made if need be.
    """
    os.makedirs(directory, exist_ok=True)
    buckets = [
        os.path.join(directory, f"digests-{number:02}")
        for number in range(_NUM_BUCKETS)
    ]
    digests = itertools.chain.from_iterable(map(_DIGESTS[level], documents))
    num_items = _write_buckets(digests, buckets)
    bitmap_path = os.path.join(directory, _BITMAP_FILE)
    with open(bitmap_path, "wb") as file:
        file.truncate(-(-num_items // 8))
    for path in buckets:
        for numbers in _repeated(path):
            _mark(bitmap_path, numbers)
        os.remove(path)
    return Duplicates(level, num_items, bitmap_path)


def _write_buckets(digests: Iterable[bytes], paths: list[str]) -> int:
    """Returns the number of digests, written with their running numbers."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(path, "wb")) for path in paths]
        num_items = 0
        for digest in digests:
            file = files[digest[-1] % len(files)]
            file.write(digest + num_items.to_bytes(_NUMBER_BYTES, "little"))
            num_items += 1
    return num_items


def _repeated(path: str) -> Iterator[np.ndarray]:
    """Yields the numbers of the rows of a bucket whose digest came before."""
    num_rows = os.path.getsize(path) // _ROW.itemsize
    # A bucket of a very large corpus is read several times, each time for
    # other digests.
    num_parts = max(1, -(-num_rows // _CHUNK_ROWS))
    for part in range(num_parts):
        firsts = np.empty(0, _ROW)
        for begin in range(0, num_rows, _CHUNK_ROWS):
            rows = np.fromfile(
                path, _ROW, _CHUNK_ROWS, offset=begin * _ROW.itemsize
            )
            rows = rows[rows["high"] % num_parts == part]
            # The rows of a file ascend by number, and the sort is stable.
            rows = np.concatenate([firsts, rows])
            rows = rows[np.lexsort((rows["low"], rows["high"]))]
            again = np.zeros(len(rows), bool)
            again[1:] = (rows["high"][1:] == rows["high"][:-1]) & (
                rows["low"][1:] == rows["low"][:-1]
            )
            firsts = rows[~again]
            yield rows["number"][again]


def _mark(bitmap_path: str, numbers: np.ndarray) -> None:
    """Sets the bits of `numbers` in the bitmap."""
    if not len(numbers):
        return
    bitmap = np.memmap(bitmap_path, np.uint8, "r+")
    numbers = np.sort(numbers.astype(np.int64))
    bits = np.left_shift(1, numbers % 8).astype(np.uint8)
    np.bitwise_or.at(bitmap, numbers // 8, bits)
    bitmap.flush()
