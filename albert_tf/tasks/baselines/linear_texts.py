"""Single texts and pairs: a linear model on TF-IDF of words and word pairs."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.config import require
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.base import Kind

# Of all classes: 160 MB.
_MAX_PARAMETERS = 20_000_000
# The features of a pair are four of each word, see `_features`.
_PARTS_OF_PAIRS = 4


def predicted_classes(
    kind: Kind,
    train: Sequence[Example],
    held_out: Sequence[Example],
    labels: Sequence[str],
) -> np.ndarray:
    """Returns the label ids, `[examples]`.

    By logistic regression, one class against all others.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    # Many times as fast as scikit-learn's default: 0.6 seconds for 6,128
    # texts of eight classes, 26 with lbfgs.
    of_class = LogisticRegression(
        C=10.0, solver="liblinear", dual=True, max_iter=100, random_state=0
    )
    model = OneVsRestClassifier(of_class)
    return _predicted(model, kind, train, held_out, labels)


def predicted_numbers(
    kind: Kind,
    train: Sequence[Example],
    held_out: Sequence[Example],
    labels: Sequence[str],
) -> np.ndarray:
    """Returns the numbers by ridge regression, `[examples]`."""
    from sklearn.linear_model import Ridge

    return _predicted(Ridge(alpha=1.0), kind, train, held_out, labels)


def _predicted(
    model: Any,
    kind: Kind,
    train: Sequence[Example],
    held_out: Sequence[Example],
    labels: Sequence[str],
) -> np.ndarray:
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
        token_pattern=r"(?u)\b\w+\b|[^\w\s]",
        max_features=max(_MAX_PARAMETERS // parts, 1000),
    )
    vectorizer.fit(texts)
    with warnings.catch_warnings():
        # A number of iterations that takes seconds is enough.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(_features(vectorizer, train), kind.label_ids(train, labels))
    return model.predict(_features(vectorizer, held_out))


def _features(vectorizer: Any, examples: Sequence[Example]) -> Any:
    """Returns a sparse matrix `[examples, features]`.

    A pair is the features of both texts, their products, their differences
    and, in one column, the similarity of the two.
    """
    from scipy import sparse

    columns = zip(*(e.texts for e in examples), strict=True)
    first, *others = map(vectorizer.transform, columns)
    if not others:
        return first
    (second,) = others
    product = first.multiply(second)
    similarity = sparse.csr_matrix(product.sum(axis=1))
    return sparse.hstack(
        [first, second, product, abs(first - second), similarity]
    ).tocsr()
