"""The effect of words, of a model that counts them."""

import pytest

from albert_tf.report.occlusion import occluded, value_of
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.base import Prediction
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.question_answering import Spans
from albert_tf.tasks.kinds.regression import Regression

WEIGHTS = {"good": 0.3, "bad": -0.2}


def predict(examples):
    """The probability of "yes" by the words of all texts."""
    found = []
    for example in examples:
        words = " ".join(example.texts).split()
        yes = 0.5 + sum(WEIGHTS.get(word, 0.0) for word in words)
        answer = "yes" if yes > 0.5 else "no"
        fields = {
            "prediction": answer,
            "probabilities": {"yes": yes, "no": 1 - yes},
        }
        found.append(Prediction(fields, example.location, 0.0))
    return found


def effects(example, **limits):
    options = {"max_words": 9, "max_seconds": 60.0, **limits}
    value = value_of(Classification())
    return list(occluded([example], predict, value, **options))


def test_words_of_a_pair():
    (found,) = effects(Example(("A good day", "not bad "), "no", "f:2"))
    assert found.prediction.location == "f:2"
    assert [[word for word, _ in text] for text in found.texts] == [
        ["A", "good", "day"],
        ["not", "bad"],
    ]
    numbers = [effect for text in found.texts for _, effect in text]
    assert numbers == pytest.approx([0, 0.3, 0, 0, -0.2])


def test_the_effect_is_on_the_answer_of_the_whole_text():
    (found,) = effects(Example(("bad",), "yes"))
    assert found.prediction.fields["prediction"] == "no"
    assert found.texts == [[("bad", pytest.approx(0.2))]]


def test_no_more_words_than_the_limit():
    (found,) = effects(Example(("a b c", "d"), "no"), max_words=2)
    assert found.texts == [
        [("a", 0.0), ("b", 0.0), ("…", 0.0)],
        [("…", 0.0)],
    ]


def test_no_example_after_the_time():
    assert effects(Example(("a",), "no"), max_seconds=-1.0) == []


def test_the_effect_on_a_number():
    value = value_of(Regression())
    found = Prediction({"prediction": 2.5}, "", 0.0)
    assert value(found, 1.0) == 2.5
    assert value_of(Spans()) is None
