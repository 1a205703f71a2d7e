"""Rankings against NumPy's and scikit-learn's own."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import NearestNeighbors

from albert_tf.search import ranking
from albert_tf.search.words import WordIndex, words_of

TEXTS = [
    "The sea is deep, and the sea is cold.",
    "Land lies beside the sea.",
    "A long text on mountains, rivers and land without any water in it.",
    "Cold rivers.",
]


def test_nearest_over_several_blocks_are_scikit_learns(monkeypatch):
    monkeypatch.setattr(ranking, "_BLOCK", 7)
    rng = np.random.default_rng(0)
    vectors = ranking.normalized(rng.normal(size=(40, 5)))
    queries = ranking.normalized(rng.normal(size=(6, 5)))
    numbers, scores = ranking.nearest(queries, vectors, 9)
    model = NearestNeighbors(n_neighbors=9, metric="cosine").fit(vectors)
    distances, expected = model.kneighbors(queries)
    np.testing.assert_array_equal(numbers, expected)
    np.testing.assert_allclose(scores, 1 - distances, atol=1e-6)


def test_nearest_gives_all_where_there_are_fewer():
    numbers, _ = ranking.nearest(np.eye(2), np.array([[0, 1], [1, 0]]), 5)
    assert numbers.tolist() == [[1, 0], [0, 1]]


def test_of_equally_near_vectors_the_first_comes_first():
    vectors = np.random.default_rng(0).integers(1, 20, (400, 1))
    numbers, scores = ranking.nearest(np.ones((1, 1)), vectors, 60)
    found = list(zip(-scores[0], numbers[0], strict=True))
    assert found == sorted(found)


def test_fusion_adds_reciprocal_ranks():
    assert ranking.fused([[7, 3], [3, 9]]) == [
        (3, pytest.approx(1 / 61 + 1 / 62)),
        (7, pytest.approx(1 / 61)),
        (9, pytest.approx(1 / 62)),
    ]


def test_ranks_count_equally_near_vectors_as_nearer():
    first = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    second = np.array([[2.0, 0.0], [3.0, 0.0], [1.0, 1.1]])
    ranks = ranking.target_ranks(first, second)
    assert ranks.tolist() == [2, 3, 1]
    assert ranking.recall(ranks, (1, 2)) == {
        "recall_at_1": pytest.approx(1 / 3),
        "recall_at_2": pytest.approx(2 / 3),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's Été, 2 été.", ["it", "s", "ete", "2", "ete"]),
        # Vowel signs are marks that are no letters; the virama is an accent.
        ("मेरी किताब यहाँ है।", ["मेरी", "किताब", "यहाँ", "है"]),
        ("தமிழ்", ["தமிழ"]),
        # The last letter in capitals, and in the end of a word.
        ("ΜΥΘΟΣ μύθος", ["μυθοσ", "μυθοσ"]),
        ("我们 A1", ["我", "们", "a1"]),
        ("บ้าน", ["บ", "า", "น"]),
        ("학교", ["학", "교"]),
    ],
)
def test_words_of_scripts(text, words):
    assert words_of(text) == words


@pytest.mark.parametrize("query", ["the cold sea sea", "land", "nothing"])
def test_tfidf_orders_as_scikit_learns(query):
    vectorizer = TfidfVectorizer(token_pattern=r"\w+")
    matrix = vectorizer.fit_transform(TEXTS).toarray()
    counts = np.zeros(matrix.shape[1])
    for word in query.split():
        if word in vectorizer.vocabulary_:
            counts[vectorizer.vocabulary_[word]] += 1
    expected = matrix @ (counts * vectorizer.idf_)
    scores = WordIndex.of_texts(TEXTS).tfidf(query)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_the_lengths_of_passages_are_computed_once(monkeypatch):
    words = WordIndex.of_texts(TEXTS)
    words.tfidf("sea")
    monkeypatch.setattr(np, "sqrt", None)
    assert words.tfidf("land").any()


def test_bm25_is_the_formula(tmp_path):
    WordIndex.of_texts(TEXTS).save(str(tmp_path))
    scores = WordIndex.load(str(tmp_path)).bm25("Sea, cold séa")
    texts = [t.lower().replace(",", "").replace(".", "").split() for t in TEXTS]
    mean = sum(map(len, texts)) / 4
    for text, score in zip(texts, scores, strict=True):
        expected = 0.0
        for word in ("sea", "cold", "sea"):
            with_word = sum(word in other for other in texts)
            idf = np.log(1 + (4 - with_word + 0.5) / (with_word + 0.5))
            tf = text.count(word)
            length = 1.2 * (0.25 + 0.75 * len(text) / mean)
            expected += idf * tf * 2.2 / (tf + length)
        assert score == pytest.approx(expected, rel=1e-5)
