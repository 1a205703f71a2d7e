"""Nearest neighbours of vectors by their cosine."""

import numpy as np


def nearest(
    vectors: np.ndarray, queries: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the nearest others of some vectors, and their cosines.

    Both results are `[queries, count]`, the nearest first. `queries` are
    numbers of rows of `vectors`, `[rows, width]`; a row is none of its own
    neighbours.
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.maximum(norms, 1e-12)
    cosines = unit[queries] @ unit.T
    cosines[np.arange(len(queries)), queries] = -np.inf
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return order, np.take_along_axis(cosines, order, axis=1)
