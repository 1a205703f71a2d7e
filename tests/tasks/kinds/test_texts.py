"""Sequences of single texts and pairs."""

import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.examples import ChoiceExample, Example
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.texts import sequence_features
from albert_tf.text.sequences import truncated_lengths


def popped(first, second, room):
    """The original's `_truncate_seq_pair`, to the letter."""
    a, b = [0] * first, [0] * second
    while True:
        if len(a) + len(b) <= room:
            return len(a), len(b)
        if len(a) > len(b):
            a.pop()
        else:
            b.pop()


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 50))
def test_pairs_are_truncated_as_in_the_original(first, second, room):
    expected = popped(first, second, room)
    assert truncated_lengths(first, second, room) == expected


def test_rows():
    # 2 is [CLS], 3 [SEP] and 7 padding.
    frame = types.SimpleNamespace(cls_id=2, sep_id=3, pad_id=7)
    token_ids = [[[8, 9]], [[]], [[8], [9, 9]], [[5] * 9, [6, 6]], [[5] * 9]]
    numbers = np.arange(5)
    found = sequence_features(token_ids, frame, 8, {"label_ids": numbers})
    batch = found.batch(numbers, 8)
    assert batch["input_ids"].tolist() == [
        [2, 8, 9, 3, 7, 7, 7, 7],
        [2, 3, 7, 7, 7, 7, 7, 7],
        [2, 8, 3, 9, 9, 3, 7, 7],
        [2, 5, 5, 5, 3, 6, 6, 3],
        [2, 5, 5, 5, 5, 5, 5, 3],
    ]
    lengths = batch["input_mask"].sum(axis=1)
    assert lengths.tolist() == [4, 2, 6, 8, 8]
    # The second text of a pair with its [SEP].
    assert batch["segment_ids"].sum(axis=1).tolist() == [0, 0, 3, 3, 0]
    assert batch["segment_ids"][3].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert batch["label_ids"].tolist() == numbers.tolist()
    assert found.truncated == [3, 4]


def test_texts_keep_their_order(tiny_tokenizer):
    examples = [
        Example(("the of", "and"), "1"),
        Example(("and the",), "2"),
        Example(("of", "of the"), None),
    ]
    config = FeatureConfig(max_seq_length=64)
    found = Regression().features(
        examples, tiny_tokenizer, config, labels=[], training=True
    )
    encode, sep = tiny_tokenizer.encode, tiny_tokenizer.sep_id
    for number, example in enumerate(examples):
        expected = [tiny_tokenizer.cls_id]
        for text in example.texts:
            expected += [*encode(text), sep]
        assert found.row(number, "input_ids").tolist() == expected
    assert found.padding["input_ids"] == tiny_tokenizer.pad_id


def test_empty_texts_are_counted():
    examples = [
        Example(texts, "x", f"file:{n}")
        for n, texts in enumerate([("a", "b"), ("a", ""), (" \t", "b")])
    ]
    kind = Classification()
    assert kind.warnings(examples, training=True) == [
        "2 of 3 examples have an empty text, the first file:1."
    ]
    assert kind.warnings(examples[:1], training=False) == []
    choices = [ChoiceExample("a", ("", "b"), 0, "file:7")]
    (line,) = MultipleChoice().warnings(choices, training=True)
    assert line.endswith("1 examples have an empty text, the first file:7.")


def test_pairs_are_recognised():
    kind = Classification()
    pair, single = Example(("a", "b"), "1"), Example(("a",), "1", "file:3")
    assert kind.are_pairs([pair, pair])
    assert not kind.are_pairs([pair, single])
    assert kind.in_both_orders([pair]) == [pair, Example(("b", "a"), "1")]
    with pytest.raises(UserError, match="file:3: double_unordered expects pai"):
        kind.in_both_orders([pair, single])
