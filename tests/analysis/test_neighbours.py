"""Nearest neighbours by cosine."""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from albert_tf.analysis.neighbours import nearest


def test_neighbours_are_those_of_scikit_learn():
    vectors = np.random.default_rng(3).normal(size=(50, 8))
    queries = np.array([4, 17])
    found, cosines = nearest(vectors, queries, 5)
    search = NearestNeighbors(n_neighbors=6, metric="cosine").fit(vectors)
    distances, expected = search.kneighbors(vectors[queries])
    # The first is the vector itself.
    np.testing.assert_array_equal(found, expected[:, 1:])
    np.testing.assert_allclose(cosines, 1 - distances[:, 1:])


def test_a_vector_of_zeros_has_no_near_one():
    _, cosines = nearest(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0]), 1)
    assert cosines == 0.0
