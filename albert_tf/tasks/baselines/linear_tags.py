"""Tags of words: a linear model on each word and its neighbours."""

import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.kinds.base import Kind

# Neighbours on either side, and the longest prefix and suffix.
_NEIGHBOURS = 2
_LONGEST_AFFIX = 4
# Columns that the features are hashed to.
_NUM_FEATURES = 1 << 18
_EPOCHS = 10
# The letters of a word's shape; a run of one sort of characters gives one.
_SHAPES = ((r"[^\W\d_]+", "a"), (r"\d+", "0"))


def predicted_tags(
    kind: Kind,
    train: Sequence[WordsExample],
    held_out: Sequence[WordsExample],
    labels: Sequence[str],
) -> np.ndarray:
    """Returns the ids of the tags, `[words of all examples]`.

    By logistic regression, one tag against all others, learned by averaged
    stochastic gradient descent, which takes a fixed number of passes.
    """
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.linear_model import SGDClassifier

    hasher = FeatureHasher(_NUM_FEATURES, input_type="string")
    model = SGDClassifier(
        loss="log_loss",
        alpha=1e-6,
        max_iter=_EPOCHS,
        tol=None,
        average=True,
        random_state=0,
    )
    model.fit(hasher.transform(_features(train)), kind.label_ids(train, labels))
    return model.predict(hasher.transform(_features(held_out)))


def _features(examples: Sequence[WordsExample]) -> Iterator[list[str]]:
    """Yields the features of each word of all examples."""
    border = [""] * _NEIGHBOURS
    for example in examples:
        shapes = [*border, *map(_shape, example.words), *border]
        words = [*border, *map(str.lower, example.words), *border]
        for first, word in enumerate(words[_NEIGHBOURS:-_NEIGHBOURS]):
            window = range(first, first + 2 * _NEIGHBOURS + 1)
            yield [
                *(f"word {n - first} {words[n]}" for n in window),
                *(f"shape {n - first} {shapes[n]}" for n in window),
                *itertools.chain.from_iterable(
                    (f"prefix {word[:size]}", f"suffix {word[-size:]}")
                    for size in range(1, _LONGEST_AFFIX + 1)
                ),
            ]


def _shape(word: str) -> str:
    """Returns the sorts of a word's characters, such as `Aa-0`."""
    first = "A" if word[:1].isupper() else ""
    capitals = "AA" if len(word) > 1 and word.isupper() else first
    for pattern, sort in _SHAPES:
        word = re.sub(pattern, sort, word)
    return capitals + word
