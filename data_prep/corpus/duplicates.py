"""Removes exact duplicates from a corpus: `remove_duplicates`.

Two passes over the documents. The first writes a digest of each document or
paragraph, with its running number, to files on disk; they are sorted one
after the other, and every occurrence but the first is marked in a file. The
second pass leaves out what is marked. Memory holds a part of one file,
whatever the corpus.
"""

import contextlib
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np

from data_prep.corpus.reading import UnitDocument

_DIGEST_BYTES = 16
_NUMBER_BYTES = 8
_ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("number", "<u8")])
DIGEST_ROW_BYTES = _ROW.itemsize

_NUM_BUCKETS = 64  # that many files are open at once
# Rows of a bucket that are read at a time; about as many different ones are in
# memory at most.
_CHUNK_ROWS = 2_000_000
_MARKS_FILE = "duplicates"


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
    documents go with duplicate paragraphs. `repeated` has the numbers of the
    digests that occurred before. Counted are dropped documents, paragraphs
    dropped from documents that stay, and the characters of both.
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


def remove_duplicates(
    read: Callable[[], Iterable[UnitDocument]],
    level: str,
    directory: str,
    counts: Counter[str],
) -> Iterator[UnitDocument]:
    """Yields a corpus without duplicates; the first occurrence stays.

    `read` gives the same documents twice. The level `paragraphs` removes
    duplicate documents too.
    `directory`, made if need be, gets some 25 bytes per document or paragraph
    at first and one byte afterwards.
    """
    is_duplicate = _find_duplicates(read(), level, directory)
    num_items = 0
    for item in read():
        size = 1 if level == "documents" else len(item.paragraphs)
        marks = is_duplicate[num_items : num_items + size]
        num_items += size
        repeated = np.flatnonzero(marks).tolist()
        kept = without_duplicates(item, level, repeated, counts)
        if kept:
            yield kept


def _find_duplicates(
    documents: Iterable[UnitDocument], level: str, directory: str
) -> np.ndarray:
    """Returns whether each item is a duplicate, bool, in a file."""
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
    marks_path = os.path.join(directory, _MARKS_FILE)
    with open(marks_path, "w+b") as file:
        file.truncate(num_items or 1)
        if hasattr(os, "posix_fallocate"):
            # A disk that gets full below a map kills the process.
            os.posix_fallocate(file.fileno(), 0, num_items or 1)
    marks = np.memmap(marks_path, bool, "r+")
    for path in buckets:
        for numbers in _repeated(path):
            marks[numbers] = True
        os.remove(path)
    # Slices of the subclass take several times as long.
    return np.asarray(marks[:num_items])


def _repeated(path: str) -> Iterator[np.ndarray]:
    """Yields the numbers of a bucket's rows whose digest occurred before."""
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
            repeated = np.zeros(len(rows), bool)
            repeated[1:] = (rows["high"][1:] == rows["high"][:-1]) & (
                rows["low"][1:] == rows["low"][:-1]
            )
            firsts = rows[~repeated]
            yield rows["number"][repeated]
