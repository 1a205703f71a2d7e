"""The simple model that a fine-tuned one is held against."""

import numpy as np
import pytest

from albert_tf.config import UserError
from albert_tf.tasks.baseline import baseline_metrics
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Example


def test_single_texts():
    examples = [
        Example((f"it is {['bad', 'good'][number % 2]}",), str(number % 2))
        for number in range(20)
    ]
    # A text without words among others.
    examples[0] = Example(("",), "0")
    measures = baseline_metrics(TASKS["SST-2"], examples[:10], examples[10:])
    assert measures == {"accuracy": 1.0}


def test_pairs_are_compared():
    """The label is whether both texts have the same words."""
    rng = np.random.default_rng(0)
    words = [f"word{number}" for number in range(20)]
    examples = []
    for number in range(400):
        first = rng.choice(words, 5, replace=False)
        second = first if number % 2 else rng.choice(words, 5, replace=False)
        examples.append(
            Example((" ".join(first), " ".join(second)), str(number % 2))
        )
    measures = baseline_metrics(TASKS["MRPC"], examples[:300], examples[300:])
    assert measures["accuracy"] > 0.95
    assert measures["f1"] > 0.95


def test_numbers():
    examples = [
        Example(("wet " * (number % 6) + "dry", "x"), str(number % 6))
        for number in range(60)
    ]
    measures = baseline_metrics(TASKS["STS-B"], examples[:30], examples[30:])
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
        baseline_metrics(TASKS[name], train, [of("0")])


def test_another_kind():
    with pytest.raises(UserError, match="RACE is of multiple choice; the base"):
        baseline_metrics(TASKS["RACE"], [], [])
