"""Single texts and pairs: a linear model on TF-IDF of words and word pairs."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.config import require
from albert_tf.tasks.kinds.base import Kind
from albert_tf.text.terms import TERM

# The limit for all classes together: 160 MB.
_MAX_PARAMETERS = 20_000_000
# The features of a pair are four of each word, see `_features`.
_PARTS_OF_PAIRS = 4


def predicted_classes(
    kind: Kind,
    train: Sequence[Any],
    held_out: Sequence[Any],
    labels: Sequence[str],
) -> np.ndarray:
    """Returns the label ids, `[examples]`.

    By logistic regression, one class against all others.
    """
    ids = kind.label_ids(train, labels)
    model, features = _fitted(_one_versus_rest(), train, ids, labels)
    return model.predict(features(held_out))


def label_probabilities(
    kind: Kind,
    train: Sequence[Any],
    held_out: Sequence[Any],
    labels: Sequence[str],
) -> np.ndarray:
    """Returns the probability of each label by itself, `[examples, labels]`.

    By logistic regression; that of a label which every or no training example
    has is 1 or 0.
    """
    ids = kind.label_ids(train, labels)
    if len(labels) == 1:
        # For scikit-learn a single column are two classes.
        ids = np.concatenate([ids, 1 - ids], axis=1)
    model, features = _fitted(_one_versus_rest(), train, ids, labels)
    return model.predict_proba(features(held_out))[:, : len(labels)]


def _one_versus_rest() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    # Many times as fast as scikit-learn's default: 0.6 seconds for 6,128
    # texts of eight classes, 26 with lbfgs.
    of_class = LogisticRegression(
        C=10.0, solver="liblinear", dual=True, max_iter=100, random_state=0
    )
    return OneVsRestClassifier(of_class)


def predicted_numbers(
    kind: Kind,
    train: Sequence[Any],
    held_out: Sequence[Any],
    labels: Sequence[str],
) -> np.ndarray:
    """Returns the numbers by ridge regression, `[examples]`."""
    from sklearn.linear_model import Ridge

    numbers = kind.label_ids(train, labels)
    model, features = _fitted(Ridge(alpha=1.0), train, numbers, labels)
    return model.predict(features(held_out))


def _fitted(
    model: Any,
    train: Sequence[Any],
    targets: np.ndarray,
    labels: Sequence[str],
) -> tuple[Any, Callable[[Sequence[Any]], Any]]:
    """Returns the model, fitted, and a function of examples: its features."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [text for example in train for text in example.texts]
    require(
        any(map(str.strip, texts)),
        f"{train[0].location} and what follows: every text is empty.",
    )
    parts = _PARTS_OF_PAIRS * max(len(labels), 1)
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2),
        sublinear_tf=True,
        token_pattern=rf"{TERM}|[^\w\s]",
        max_features=max(_MAX_PARAMETERS // parts, 1000),
    )
    vectorizer.fit(texts)
    features = functools.partial(_features, vectorizer)
    with warnings.catch_warnings():
        # A number of iterations that takes seconds is enough.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # A label that every training example has, or none.
        warnings.filterwarnings("ignore", "Label .* is present in all")
        model.fit(features(train), targets)
    return model, features


def _features(vectorizer: Any, examples: Sequence[Any]) -> Any:
    """Returns a sparse matrix `[examples, features]`.

    A pair is the features of both texts, their products, their differences
    and, in two columns, the cosine of the two, and that of their words alone,
    which says more than that of the words and their pairs.
    """
    from scipy import sparse
    from sklearn.preprocessing import normalize

    columns = zip(*(e.texts for e in examples), strict=True)
    first, *others = map(vectorizer.transform, columns)
    if not others:
        return first
    (second,) = others
    product = first.multiply(second)
    names = vectorizer.get_feature_names_out()
    words = [n for n, name in enumerate(names) if " " not in name]
    of_words = [normalize(part[:, words]) for part in (first, second)]
    cosines = [
        sparse.csr_matrix(products.sum(axis=1))
        for products in (product, of_words[0].multiply(of_words[1]))
    ]
    return sparse.hstack(
        [first, second, product, abs(first - second), *cosines]
    ).tocsr()
