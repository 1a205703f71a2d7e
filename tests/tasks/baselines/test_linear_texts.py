"""TF-IDF with a linear model, for classes and numbers."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from albert_tf.config import UserError
from albert_tf.tasks.baselines.table import baseline_scores
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Example


def metrics_of(name, train, held_out):
    task = TASKS[name]
    scored = baseline_scores(task, train, held_out)
    return task.kind.compute_metrics(scored, task.metrics)


def test_single_texts():
    examples = [
        Example((f"it is {['bad', 'good'][number % 2]}",), str(number % 2))
        for number in range(20)
    ]
    # A text without words among others.
    examples[0] = Example(("",), "0")
    measures = metrics_of("SST-2", examples[:10], examples[10:])
    assert measures["accuracy"] == 1.0
    assert measures["majority_class_accuracy"] == 0.5


def test_texts_without_spaces():
    rng = np.random.default_rng(0)
    signs = [chr(code) for code in range(0x4E00, 0x4E30)]
    examples = []
    for number in range(120):
        text = rng.permutation([*rng.choice(signs, 9), "猫狗"[number % 2]])
        examples.append(Example(("".join(text),), str(number % 2)))
    measures = metrics_of("SST-2", examples[:80], examples[80:])
    assert measures["accuracy"] > 0.9


def pairs_alike_or_not(count):
    """The label is whether both texts have the same words."""
    rng = np.random.default_rng(0)
    words = [f"word{number}" for number in range(20)]
    examples = []
    for number in range(count):
        first = rng.choice(words, 5, replace=False)
        second = first if number % 2 else rng.choice(words, 5, replace=False)
        examples.append(
            Example((" ".join(first), " ".join(second)), str(number % 2))
        )
    return examples


def test_pairs_are_compared():
    examples = pairs_alike_or_not(400)
    measures = metrics_of("MRPC", examples[:300], examples[300:])
    assert measures["accuracy"] > 0.95
    assert measures["f1"] > 0.95


def test_pairs_against_scikit_learn():
    examples = pairs_alike_or_not(60)
    train, held_out = examples[:40], examples[40:]
    vectorizers = [
        TfidfVectorizer(ngram_range=(1, longest), sublinear_tf=True)
        for longest in (2, 1)
    ]
    for vectorizer in vectorizers:
        vectorizer.fit([text for e in train for text in e.texts])

    def features(rows):
        (a, b), words = (
            [
                vectorizer.transform([e.texts[side] for e in rows]).toarray()
                for side in (0, 1)
            ]
            for vectorizer in vectorizers
        )
        cosines = [
            (u * v).sum(axis=1, keepdims=True) for u, v in ((a, b), words)
        ]
        return sparse.csr_matrix(np.hstack([a, b, a * b, abs(a - b), *cosines]))

    # Another solver finds the same.
    model = LogisticRegression(C=10.0, max_iter=1000)
    model.fit(features(train), [int(e.label) for e in train])
    scored = baseline_scores(TASKS["MRPC"], train, held_out)
    found = np.argmax(scored.scores, axis=1).tolist()
    assert found == model.predict(features(held_out)).tolist()


def test_numbers():
    examples = [
        Example(("wet " * (number % 6) + "dry", "x"), str(number % 6))
        for number in range(60)
    ]
    measures = metrics_of("STS-B", examples[:30], examples[30:])
    assert measures["pearson"] > 0.9


def of(label, text="it is good"):
    return Example((text,), label, "train.tsv:2")


@pytest.mark.parametrize(
    ("name", "train", "message"),
    [
        ("SST-2", [of("1")] * 4, "one label only, '1'; a classifier"),
        ("STS-B", [of("0", ""), of("1", " \t")], "every text is empty."),
    ],
)
def test_examples_to_learn_nothing_from(name, train, message):
    message = f"^train.tsv:2 and what follows: .*{message}"
    with pytest.raises(UserError, match=message):
        baseline_scores(TASKS[name], train, [of("0")])
