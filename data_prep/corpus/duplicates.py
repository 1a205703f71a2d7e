"""Removes exact duplicates from a corpus: `remove_duplicates`.

The digests of what has been read are in a file on disk, in which SQLite finds
and adds them: memory holds a part of it, whatever the corpus.
"""

import contextlib
import errno
import hashlib
import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from data_prep.corpus.reading import UnitDocument

_DIGEST_BYTES = 16
# About what a digest takes in the file.
DIGEST_FILE_BYTES = 32
_SEEN_FILE = "digests"
# Nothing in it has to survive: a build that is resumed reads the corpus again.
_TABLE = """
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA cache_size = -64000;  -- kB
    CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID;
"""


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
    documents: Iterable[UnitDocument],
    level: str,
    directory: str,
    counts: Counter[str],
) -> Iterator[UnitDocument]:
    """Yields documents without duplicates; the first occurrence stays.

    The level `paragraphs` removes duplicate documents too. `directory`, made if
    need be, gets the file of digests, which is removed at the end.
    """
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, _SEEN_FILE)
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    with (
        _full_disk_as_os_error(path),
        contextlib.closing(sqlite3.connect(path)) as connection,
    ):
        seen = connection.executescript(_TABLE)
        for item in documents:
            found = digests(item.paragraphs, level)
            repeated = {n for n, each in enumerate(found) if _has(seen, each)}
            kept = without_duplicates(item, level, repeated, counts)
            if kept:
                yield kept
    os.remove(path)


def _has(seen: sqlite3.Cursor, digest: bytes) -> bool:
    """Returns whether a digest has been seen, and adds it."""
    seen.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,))
    return not seen.rowcount


@contextlib.contextmanager
def _full_disk_as_os_error(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise
        number = errno.ENOSPC
        raise OSError(number, os.strerror(number), path) from None
