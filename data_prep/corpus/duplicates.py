"""Removes exact duplicates from a corpus: `find_duplicates`, then `remove`.

Two passes over the documents. The first writes a digest of each document or
paragraph, with its running number, to files on disk; they are sorted one
after the other, and every occurrence but the first is marked in a bitmap. The
second pass leaves out what is marked. Memory holds a part of one file,
whatever the corpus.
"""

import contextlib
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.config import require
from data_prep.corpus.reading import Document, UnitDocument

_DIGEST_BYTES = 16
_NUMBER_BYTES = 8
_ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("number", "<u8")])
DIGEST_ROW_BYTES = _ROW.itemsize

_NUM_BUCKETS = 64  # as many files are open at once
# Rows of a bucket that are read at a time; about as many different ones are in
# memory at most.
_CHUNK_ROWS = 2_000_000
_BITMAP_FILE = "duplicates.bitmap"
_BITMAP_CHUNK_BYTES = 1 << 16


def digests(paragraphs: Sequence[str], level: str) -> list[bytes]:
    """Returns the digests by which the duplicates of a document are known.

    One of each paragraph, or of all where the level is `documents`.
    """
    found = [_digest(text.encode()) for text in paragraphs]
    return [_digest(b"".join(found))] if level == "documents" else found


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def without_duplicates(
    item: UnitDocument,
    level: str,
    repeated: Collection[int],
    counts: Counter[str],
) -> UnitDocument | None:
    """Returns a document without its duplicates, None if nothing is left.

    A document without a paragraph of its own is dropped, so that duplicate
    documents go with duplicate paragraphs.

    Args:
        item: the document; its name stays.
        level: `documents` or `paragraphs`.
        repeated: numbers of the digests that came before.
        counts: `duplicate_documents`, those that are dropped;
            `duplicate_paragraphs`, those dropped from documents that stay;
            and `duplicate_characters`, of both, are added to it.
    """
    if not repeated:
        return item
    texts = item.paragraphs
    drop = range(len(texts)) if level == "documents" else repeated
    kept = tuple(t for n, t in enumerate(texts) if n not in drop)
    counts["duplicate_characters"] += sum(len(texts[n]) for n in drop)
    if kept:
        counts["duplicate_paragraphs"] += len(drop)
        return item._replace(paragraphs=kept)
    counts["duplicate_documents"] += 1
    return None


class Duplicates(NamedTuple):
    """The duplicates of a corpus, see `find_duplicates`.

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
        """Yields `items` without the duplicates, see `without_duplicates`.

        Raises:
            UserError: if there are more or fewer documents or paragraphs than
                `find_duplicates` saw.
        """
        num_items = 0
        with contextlib.closing(self._marks()) as marks:
            for item in items:
                whole = self.level == "documents"
                size = 1 if whole else len(item.paragraphs)
                num_items += size
                repeated = [
                    number
                    for number, mark in enumerate(itertools.islice(marks, size))
                    if mark
                ]
                kept = without_duplicates(item, self.level, repeated, counts)
                if kept:
                    yield kept
        require(
            num_items == self.num_items,
            f"The input has changed while it was read: {num_items} "
            f"{self.level} instead of {self.num_items}; start again.",
        )

    def _marks(self) -> Iterator[int]:
        """Yields 1 for every item that is a duplicate and 0 for others."""
        with open(self.bitmap_path, "rb") as file:
            while data := file.read(_BITMAP_CHUNK_BYTES):
                bits = np.frombuffer(data, np.uint8)
                yield from np.unpackbits(bits, bitorder="little").tolist()


def find_duplicates(
    documents: Iterable[Document | UnitDocument], level: str, directory: str
) -> Duplicates:
    """Returns the duplicates: all but the first of equal items.

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
    found = (digests(document.paragraphs, level) for document in documents)
    num_items = 0
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open(path, "wb")) for path in buckets]
        for digest in itertools.chain.from_iterable(found):
            number = num_items.to_bytes(_NUMBER_BYTES, "little")
            opened[digest[-1] % len(opened)].write(digest + number)
            num_items += 1
    bitmap_path = os.path.join(directory, _BITMAP_FILE)
    with open(bitmap_path, "wb") as file:
        file.truncate(-(-num_items // 8))
    for path in buckets:
        for numbers in _repeated(path):
            _mark(bitmap_path, numbers)
        os.remove(path)
    return Duplicates(level, num_items, bitmap_path)


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
