"""Baseline for texts: a linear model on TF-IDF features."""

from collections.abc import Sequence
from typing import Any

from albert_tf.config import UserError
from albert_tf.tasks.base import Task
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.base import metric_values
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.regression import Regression


def baseline_metrics(
    task: Task, train: Sequence[Example], held_out: Sequence[Example]
) -> dict[str, float]:
    """Returns a task's metrics of a linear model on TF-IDF (scikit-learn).

    Logistic regression for labels, ridge regression for numbers, on words
    and pairs of words. A pair of texts is the features of both, their
    products and the distance between the two.
    """
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge

    if not isinstance(task.kind, Classification | Regression):
        raise UserError(
            f"{task.name} is of {task.kind.name}; the baseline is for single "
            "texts and pairs with a label or a number."
        )
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2),
        sublinear_tf=True,
        token_pattern=r"(?u)\b\w+\b|[^\w\s]",
    )
    texts = [text for example in train for text in example.texts]
    if not any(map(str.strip, texts)):
        raise UserError(
            f"{train[0].location} and what follows: every text is empty."
        )
    vectorizer.fit(texts)

    def features(examples: Sequence[Example]) -> Any:
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

    labels: Sequence[str] = ()
    model = Ridge(alpha=1.0)
    if isinstance(task.kind, Classification):
        # Refuses a single label.
        occurring = task.kind.labels(train)
        labels = task.labels or occurring
        model = LogisticRegression(max_iter=1000, C=10.0)
    model.fit(features(train), task.kind.label_ids(train, labels))
    gold = task.kind.label_ids(held_out, labels)
    return metric_values(task.metrics, gold, model.predict(features(held_out)))
