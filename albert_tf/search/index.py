"""An index of passages: their vectors, words and texts in a directory."""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.config import UserError, lookup, require
from albert_tf.io import files
from albert_tf.io.json_files import read_json
from albert_tf.search.ranking import best, fused, nearest, normalized
from albert_tf.search.words import WordIndex

# Written last: a directory without it is no index.
INDEX_FILE = "index.json"
VECTORS, PASSAGES = "vectors.npy", "passages.jsonl"
# A change of what the words of a text are changes it, too.
FORMAT = 3
# Questions that are given to the model together.
_BATCH = 1024
# Places of each ranking that are fused.
_FUSED_PLACES = 100
# The number of passages for a question, and a row of RANKINGS.
DEFAULT_TOP_K = 5
DEFAULT_RANKING = "tfidf"

# Returns vectors `[texts, width]`.
Embed = Callable[[Sequence[str]], np.ndarray]


class Hit(NamedTuple):
    """A passage that was found, and its score."""

    score: float
    document: str
    place: int
    text: str


def answer(query: str, hits: Iterable[Hit]) -> dict[str, Any]:
    """Returns a question and the passages found for it, for JSON."""
    return {"query": query, "passages": [hit._asdict() for hit in hits]}


@dataclasses.dataclass(frozen=True)
class Index:
    """An index that was read; the vectors stay on the disk until needed.

    `embed` is that of the model that made the vectors; None: only words are
    searched for. An index that was written without a model has no vectors.
    """

    directory: str
    vectors: np.ndarray | None
    passages: Sequence[bytes]
    words: WordIndex
    embed: Embed | None

    @classmethod
    def open(
        cls,
        directory: str,
        model: Mapping[str, Any] | None = None,
        embed: Embed | None = None,
    ) -> "Index":
        """Reads an index.

        Raises:
            UserError: for what is no index, a damaged one, one in a bucket,
                and one that another `model` made.
        """
        require_on_disk(directory)
        path = os.path.join(directory, INDEX_FILE)
        require(
            files.isfile(path),
            f"{directory} is no index: it has no {INDEX_FILE}; bin.search "
            "--index_texts writes one.",
        )
        recorded = read_json(path, advice="Write it anew with --index_texts.")
        require(
            recorded.get("format") == FORMAT,
            f"{path} is of another version of this program; write the index "
            "anew with --index_texts.",
        )
        if model is not None:
            _check_model(directory, recorded.get("model"), model)
        try:
            _check_files(
                directory, recorded["sha256"], with_vectors=bool(embed)
            )
            vectors = None
            if embed:
                path = os.path.join(directory, VECTORS)
                vectors = np.load(path, mmap_mode="r")
            with open(os.path.join(directory, PASSAGES), "rb") as file:
                passages = file.read().splitlines()
            words = WordIndex.load(directory)
        except (OSError, ValueError, LookupError, AttributeError) as error:
            raise UserError(
                f"The index {directory} is damaged ({error}); write it anew "
                "with --index_texts."
            ) from None
        return cls(directory, vectors, passages, words, embed)

    @property
    def name(self) -> str:
        """The name of its directory."""
        return os.path.basename(os.path.abspath(self.directory))

    @property
    def rankings(self) -> dict[str, "Ranking"]:
        """The rows of RANKINGS that this index can be searched by."""
        return {
            name: ranking
            for name, ranking in RANKINGS.items()
            if self.embed or not ranking.reads_vectors
        }

    def search(
        self, queries: Sequence[str], top_k: int, ranking: str = DEFAULT_RANKING
    ) -> Iterator[list[Hit]]:
        """Yields the best passages for each query, the best first.

        `ranking` is one of `rankings`. A passage without any word of a query
        is no result of a ranking by words.
        """
        rank = lookup(self.rankings, ranking, "ranking").rank
        for found in rank(self, queries, top_k):
            yield [self._hit(*item) for item in found]

    def _hit(self, number: int, score: float) -> Hit:
        return Hit(score, **json.loads(self.passages[number]))

    def documents(self) -> list[str]:
        """Returns the name of each passage's document."""
        return [json.loads(passage)["document"] for passage in self.passages]


def require_on_disk(directory: str) -> None:
    """Raises UserError for a directory in a bucket."""
    require(
        not files.is_remote(directory),
        f"{directory}: expected a directory on a disk, from which search maps "
        "the vectors of an index into memory, got one in a bucket.",
    )


def _check_model(
    directory: str, recorded: Any, model: Mapping[str, Any]
) -> None:
    """Raises UserError unless a model has written the vectors of an index."""
    require(
        recorded is not None,
        f"{directory} was written without a model, so that it has no "
        "vectors; write it anew with --index_texts and --model_dir.",
    )
    require(
        recorded == dict(model),
        f"{directory} was written with another model, whose vectors are no "
        "measure for this one's; give that --model_dir, or write the index "
        "anew with --index_texts.",
    )


def _check_files(
    directory: str, digests: Mapping[str, str], *, with_vectors: bool
) -> None:
    """Raises ValueError for a file that is not as it was written.

    The vectors, which may be large, are read only where they are needed.
    """
    for name, digest in digests.items():
        if (name != VECTORS or with_vectors) and digest != file_digest(
            os.path.join(directory, name)
        ):
            raise ValueError(f"{name} is not as it was written")


def file_digest(path: str) -> str:
    """Returns the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Number and score of the passages for each query.
Found = Iterator[list[tuple[int, float]]]


def _by_vectors(index: Index, queries: Sequence[str], top_k: int) -> Found:
    assert index.embed is not None and index.vectors is not None
    for first in range(0, len(queries), _BATCH):
        texts = queries[first : first + _BATCH]
        vectors = normalized(index.embed(texts))
        for numbers, scores in zip(
            *nearest(vectors, index.vectors, top_k), strict=True
        ):
            yield list(zip(numbers.tolist(), scores.tolist(), strict=True))


def _by_words(
    score: Callable[[WordIndex, str], np.ndarray],
    index: Index,
    queries: Sequence[str],
    top_k: int,
) -> Found:
    for query in queries:
        scores = score(index.words, query)
        # Most passages have none of the words, and need no sorting.
        (hits,) = np.nonzero(scores)
        (places,) = best(scores[None, hits], top_k)
        yield [(int(n), float(scores[n])) for n in hits[places]]


def _by_both(index: Index, queries: Sequence[str], top_k: int) -> Found:
    places = max(top_k, _FUSED_PLACES)
    both = (
        _by_vectors(index, queries, places),
        _by_words(WordIndex.bm25, index, queries, places),
    )
    for rankings in zip(*both, strict=True):
        yield fused([n for n, _ in each] for each in rankings)[:top_k]


class Ranking(NamedTuple):
    """A row of RANKINGS: how passages are ranked, and whether by vectors."""

    rank: Callable[[Index, Sequence[str], int], Found]
    reads_vectors: bool


RANKINGS: dict[str, Ranking] = {
    "embedding": Ranking(_by_vectors, True),
    "tfidf": Ranking(functools.partial(_by_words, WordIndex.tfidf), False),
    "bm25": Ranking(functools.partial(_by_words, WordIndex.bm25), False),
    "hybrid": Ranking(_by_both, True),
}


def document_ranks(
    index: Index,
    questions: Iterable[tuple[str, str]],
    ranking: str,
    places: int,
) -> list[float]:
    """Returns the place, from 1, of the first passage of the right document.

    A document counts once, by its best passage; infinite where it is not
    among `places` documents of 20 times as many passages.

    Args:
        index: to search.
        questions: the question and the name of the right document of each.
        ranking: a row of RANKINGS.
        places: the last one that counts.
    """
    questions = list(questions)
    ranks = []
    found = index.search([q for q, _ in questions], 20 * places, ranking)
    for hits, (_, right) in zip(found, questions, strict=True):
        documents = list(dict.fromkeys(hit.document for hit in hits))[:places]
        ranks.append(
            documents.index(right) + 1.0 if right in documents else np.inf
        )
    return ranks
