"""Removes nearly equal documents from a corpus: `remove_near_duplicates`.

Two documents are compared by the Jaccard similarity of their shingles, runs of
five words: the shingles in both, divided by the shingles in either. MinHash
(Broder, 1997) estimates it by the share of equal values in two signatures of
128 values; locality-sensitive hashing (Indyk and Motwani, 1998) finds the
pairs whose signatures have to be compared. A document stays unless its
estimate with an earlier one that stays reaches the threshold; so each document
that goes has one like it among those that stay, and the result follows from
the documents and their order.

On disk lie 512 bytes per document; memory holds at most 12 for each band beside
them, 252 at the threshold 0.8.
"""

import functools
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.records import counter_rng
from data_prep.corpus.duplicates import digests, without_duplicates
from data_prep.corpus.reading import UnitDocument

SIGNATURE_SIZE = 128
SIGNATURE_BYTES = 4 * SIGNATURE_SIZE
_SHINGLE_WORDS = 5
# With fewer words one that differs changes most of the shingles, so that the
# similarity says little: they are compared exactly.
_MIN_WORDS = 20
# Share of the pairs right at the threshold that must become candidates.
_MIN_RECALL = 0.99
# A character of a script without spaces is a word.
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+")

_BATCH_CHARS = 500_000  # characters that a worker takes at a time
_BLOCK = 64  # shingles or documents of a step in NumPy: they stay in the cache
_SIGNATURES_FILE = "signatures"
# Pairs that a report shows: the least similar ones, by which to judge the
# threshold.
_SHOWN_PAIRS = 10

# Multiply-shift hashing: odd factors and summands, the high half of the sum.
_FACTORS, _SUMMANDS = counter_rng.random_bits(
    counter_rng.key("minhash"), np.arange(2 * SIGNATURE_SIZE)
).reshape(2, SIGNATURE_SIZE)
_FACTORS |= np.uint64(1)


class NearDuplicate(NamedTuple):
    """A document that goes, the earlier one that stays, both by number."""

    number: int
    kept: int
    similarity: float  # estimated


def signatures(documents: Iterable[Sequence[str]]) -> np.ndarray:
    """Returns the signatures `[n, 128]`, uint32, of documents' paragraphs."""
    found = [_signature(_shingles(paragraphs)) for paragraphs in documents]
    return np.array(found, np.uint32).reshape(-1, SIGNATURE_SIZE)


def _shingles(paragraphs: Sequence[str]) -> np.ndarray:
    """Returns 64 bits for each shingle; short documents are one shingle."""
    words = [w for text in paragraphs for w in _WORD.findall(text.lower())]
    if len(words) < _MIN_WORDS:
        (digest,) = digests(paragraphs, "documents")
        return np.frombuffer(digest[:8], "<u8")
    hashes = np.fromiter(map(_word_hash, words), np.uint64, len(words))
    size = len(words) - _SHINGLE_WORDS + 1
    found = hashes[:size]
    for shift in range(1, _SHINGLE_WORDS):
        found = counter_rng.fold_in(found, hashes[shift : shift + size])
    return np.unique(found)


@functools.lru_cache(maxsize=100_000)
def _word_hash(word: str) -> int:
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _signature(shingles: np.ndarray) -> np.ndarray:
    """Returns the least value of each of 128 hash functions."""
    least = np.full(SIGNATURE_SIZE, np.iinfo(np.uint64).max)
    for begin in range(0, len(shingles), _BLOCK):
        block = shingles[begin : begin + _BLOCK, None]
        hashes = block * _FACTORS
        hashes += _SUMMANDS
        np.minimum(least, hashes.min(axis=0), out=least)
    return least >> np.uint64(32)


def bands_and_rows(threshold: float) -> tuple[int, int]:
    """Returns how signatures are divided into bands of rows.

    Documents with all rows of a band equal are candidates. The rows are as
    many as they can be while, of pairs right at the threshold, _MIN_RECALL
    become candidates: 1 - (1 - threshold^rows)^bands.
    """
    for rows in range(SIGNATURE_SIZE, 1, -1):
        bands = SIGNATURE_SIZE // rows
        if 1 - (1 - threshold**rows) ** bands >= _MIN_RECALL:
            return bands, rows
    return SIGNATURE_SIZE, 1


def near_duplicates(
    found: np.ndarray, threshold: float
) -> Iterator[NearDuplicate]:
    """Yields the documents that go, by their signatures `[n, 128]` in order.

    The earlier document is the most similar one that stays.
    """
    bands, rows = bands_and_rows(threshold)
    # The documents with one slot of a band are a chain: the head is the last,
    # and each has the one before it, -1 at the end.
    slots = 1 << max(1, len(found) - 1).bit_length()
    heads = np.full((bands, slots), -1, np.int32)
    before = np.empty((bands, len(found)), np.int32)
    band = np.arange(bands)
    for begin in range(0, len(found), _BLOCK):
        block = found[begin : begin + _BLOCK]
        for number, slot in enumerate(
            _slots(block, bands, rows) % np.uint64(slots), begin
        ):
            first = heads[band, slot]
            candidates = _chained(before, first)
            if candidates.size:
                equal = found[candidates] == block[number - begin]
                shares = equal.mean(axis=1)
                best = int(shares.argmax())
                if shares[best] >= threshold:
                    kept = int(candidates[best])
                    yield NearDuplicate(number, kept, float(shares[best]))
                    continue
            before[:, number] = first
            heads[band, slot] = number


def _slots(block: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """Returns a hash of each band of each signature, `[n, bands]`."""
    parts = block[:, : bands * rows].reshape(-1, rows)
    hashes = counter_rng.fold_in(parts[:, 0], 0)
    for row in range(1, rows):
        hashes = counter_rng.fold_in(hashes, parts[:, row])
    return hashes.reshape(len(block), bands)


def _chained(before: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Returns the documents of the chains that begin with `first`, sorted."""
    band = np.flatnonzero(first >= 0)
    last = first[band]
    found = []
    while last.size:
        found.append(last)
        last = before[band, last]
        band = band[last >= 0]
        last = last[last >= 0]
    return np.unique(np.concatenate(found)) if found else last


def remove_near_duplicates(
    read: Callable[[], Iterable[UnitDocument]],
    threshold: float,
    directory: str,
    counts: Counter[str],
    *,
    pairs: list[dict[str, Any]],
    map_batches: Callable[..., Iterable[np.ndarray]] = map,
) -> Iterator[UnitDocument]:
    """Yields a corpus without near-duplicates; the first one stays.

    `read` gives the same documents twice. `map_batches` maps a function over
    batches in their order, as `map` does. The least similar pairs are added to
    `pairs` as `shown_pairs` has them. `directory`, made if need be, gets the
    signatures.
    """
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, _SIGNATURES_FILE)
    with open(path, "wb") as file:
        for of_batch in map_batches(signatures, _batches(read())):
            file.write(of_batch.astype("<u4").tobytes())
    found: list[NearDuplicate] = []
    if size := os.path.getsize(path) // SIGNATURE_BYTES:
        shape = size, SIGNATURE_SIZE
        # Slices of the subclass take several times as long.
        mapped = np.asarray(np.memmap(path, "<u4", "r", shape=shape))
        found = list(near_duplicates(mapped, threshold))
        del mapped
    os.remove(path)
    shown = least_similar(found)
    names: dict[int, str] = {n: "" for pair in shown for n in pair[:2]}
    gone = {pair.number for pair in found}
    for number, item in enumerate(read()):
        if number in names:
            names[number] = full_name(item)
        repeated = (0,) if number in gone else ()
        kept = without_duplicates(item, "documents", repeated, counts)
        if kept:
            yield kept
    pairs += [shown_pair(pair, names) for pair in shown]


def full_name(item: UnitDocument) -> str:
    """Returns a name that no other document of the inputs has."""
    return f"{item.origin}: {item.name}"


def least_similar(found: Iterable[NearDuplicate]) -> list[NearDuplicate]:
    """Returns the pairs that a report shows."""
    ranked = sorted(found, key=lambda pair: (pair.similarity, pair.number))
    return ranked[:_SHOWN_PAIRS]


def shown_pair(
    pair: NearDuplicate, names: dict[int, str] | Sequence[str]
) -> dict[str, Any]:
    """Returns a pair as JSON, with the names of its documents."""
    return {
        "document": names[pair.number],
        "kept": names[pair.kept],
        "similarity": round(pair.similarity, 4),
    }


def _batches(
    items: Iterable[UnitDocument],
) -> Iterator[list[tuple[str, ...]]]:
    """Yields the paragraphs of documents, a bounded amount of text a time."""
    batch: list[tuple[str, ...]] = []
    size = 0
    for item in items:
        batch.append(item.paragraphs)
        size += item.num_characters
        if size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
