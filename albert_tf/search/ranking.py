"""Rankings: nearest vectors, fusion of several rankings, recall."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

# Passages that are compared with the questions in one product.
_BLOCK = 1 << 15
# Rows that are ranked in one product with all others.
_RANKED_ROWS = 1024
# Cormack et al. 2009, whose value every system has kept.
_FUSION_CONSTANT = 60


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors `[..., width]` of length 1, float32; 0 stays 0."""
    vectors = np.asarray(vectors, np.float32)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norms, np.float32(1e-12))


def best(scores: np.ndarray, number: int) -> np.ndarray:
    """Returns the places of the highest scores `[rows, number]`, best first.

    Of equal ones the first comes first. There may be fewer than `number`.
    """
    number = min(number, scores.shape[1])
    return np.argsort(-scores, axis=1, kind="stable")[:, :number]


def nearest(
    queries: np.ndarray, vectors: np.ndarray, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers and scores of the nearest vectors, exactly.

    The score is the product with the query, both `[queries, number]`.

    Args:
        queries: float32 `[queries, width]`.
        vectors: `[passages, width]`, in memory or mapped from a file.
        number: of vectors for each query.
    """
    found = np.zeros((len(queries), 0), np.int64)
    scores = np.zeros((len(queries), 0), np.float32)
    for first in range(0, len(vectors), _BLOCK):
        block = np.asarray(vectors[first : first + _BLOCK], np.float32)
        products = queries @ block.T
        within = _candidates(products, number)
        numbers = np.concatenate([found, within + first], axis=1)
        scores = np.concatenate(
            [scores, np.take_along_axis(products, within, axis=1)], axis=1
        )
        kept = best(scores, number)
        found = np.take_along_axis(numbers, kept, axis=1)
        scores = np.take_along_axis(scores, kept, axis=1)
    return found, scores


def _candidates(products: np.ndarray, number: int) -> np.ndarray:
    """Returns the places of the highest `[rows, number]`, in their order."""
    if products.shape[1] <= number:
        return np.broadcast_to(np.arange(products.shape[1]), products.shape)
    places = np.argpartition(-products, number - 1, axis=1)[:, :number]
    return np.sort(places, axis=1)


def fused(rankings: Iterable[Sequence[int]]) -> list[tuple[int, float]]:
    """Returns (number, score) by reciprocal rank fusion, the best first.

    A number's score is the sum of 1 / (60 + place) over the rankings that
    have it, places from 1.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for place, number in enumerate(ranking, start=1):
            gain = 1.0 / (_FUSION_CONSTANT + place)
            scores[int(number)] = scores.get(int(number), 0.0) + gain
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def target_ranks(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the place, from 1, of each row's own second vector `[rows]`.

    Among all second vectors by their cosines with the row's first one;
    others that are as near count as nearer.
    """
    first, second = normalized(first), normalized(second)
    return np.concatenate(list(_ranks_of_blocks(first, second)))


def _ranks_of_blocks(
    first: np.ndarray, second: np.ndarray
) -> Iterator[np.ndarray]:
    for start in range(0, len(first), _RANKED_ROWS):
        products = first[start : start + _RANKED_ROWS] @ second.T
        rows = np.arange(len(products))
        own = products[rows, start + rows]
        yield (products >= own[:, None]).sum(axis=1)


def recall(
    ranks: Sequence[int] | np.ndarray, places: Sequence[int]
) -> dict[str, float]:
    """Returns the share of ranks, from 1, within each number of places."""
    ranks = np.asarray(ranks, float)
    return {
        f"recall_at_{number}": float((ranks <= number).mean())
        if ranks.size
        else 0.0
        for number in places
    }
