"""Occlusion: the effect of each word, from the prediction without it.

It needs nothing of a model but its predictions.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.base import Kind, Prediction
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.regression import Regression

# Returns the predictions for examples.
Predict = Callable[[Sequence[Example]], Sequence[Prediction]]


@dataclasses.dataclass(frozen=True)
class Occluded:
    """A prediction, and the effect of the words of each text on it.

    The effect is the probability of the predicted label, or the number, minus
    what it is without the word. Words beyond the limit are "…".
    """

    prediction: Prediction
    texts: list[list[tuple[str, float]]]


def value_of(kind: Kind) -> Callable[[Prediction, Any], float] | None:
    """Returns the function of a prediction and a label that words change.

    None for kinds whose examples are not texts with one answer.
    """
    if isinstance(kind, Classification):
        return lambda found, label: found.fields["probabilities"][label]
    if isinstance(kind, Regression):
        return lambda found, label: found.fields["prediction"]
    return None


def occluded(
    examples: Iterable[Example],
    predict: Predict,
    value: Callable[[Prediction, Any], float],
    *,
    max_words: int,
    max_seconds: float,
) -> Iterator[Occluded]:
    """Yields the effects of each example's words, while there is time.

    At most `max_words` words of an example are left out, one after another.
    """
    begin = time.monotonic()
    for example in examples:
        if time.monotonic() - begin > max_seconds:
            return
        words = [text.split() for text in example.texts]
        places = [
            (text, word)
            for text, of_text in enumerate(words)
            for word in range(len(of_text))
        ][:max_words]
        variants = [_without(example, words, *place) for place in places]
        whole, *others = predict([example, *variants])
        label = whole.fields["prediction"]
        before = value(whole, label)
        effects = {
            place: before - value(found, label)
            for place, found in zip(places, others, strict=True)
        }
        texts: list[list[tuple[str, float]]] = [[] for _ in words]
        for text, word in places:
            effect = (words[text][word], effects[text, word])
            texts[text].append(effect)
        for shown, of_text in zip(texts, words, strict=True):
            if len(shown) < len(of_text):
                shown.append(("…", 0.0))
        yield Occluded(whole, texts)


def _without(
    example: Example, words: Sequence[Sequence[str]], text: int, word: int
) -> Example:
    """Returns the example without one of its words."""
    texts = list(example.texts)
    rest = [*words[text][:word], *words[text][word + 1 :]]
    texts[text] = " ".join(rest)
    return dataclasses.replace(example, texts=tuple(texts), label=None)
