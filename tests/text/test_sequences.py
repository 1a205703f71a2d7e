"""Texts and pairs as a model's inputs: `tokenizer(texts, pairs)`."""

import numpy as np
import pytest

from albert_tf.config import UserError

FIRST = ["the", "of and the of", ""]
SECOND = ["and", "the", "of the"]


def framed(tokenizer, *texts):
    """A row's ids and segments, by the documented form."""
    ids, segments = [tokenizer.cls_id], [0]
    for number, text in enumerate(texts):
        part = [*tokenizer.encode(text), tokenizer.sep_id]
        ids += part
        segments += [number] * len(part)
    return ids, segments


@pytest.mark.parametrize("form", ["texts", "pairs", "tuples"])
def test_rows_are_framed_and_padded_to_the_longest(tiny_tokenizer, form):
    rows = list(zip(FIRST, SECOND, strict=True))
    if form == "texts":
        rows, found = [(text,) for text in FIRST], tiny_tokenizer(FIRST)
    elif form == "pairs":
        found = tiny_tokenizer(np.array(FIRST), iter(SECOND))
    else:
        found = tiny_tokenizer(rows)
    expected = [framed(tiny_tokenizer, *row) for row in rows]
    width = max(len(ids) for ids, _ in expected)
    for number, (ids, segments) in enumerate(expected):
        rest = width - len(ids)
        row = {name: values[number].tolist() for name, values in found.items()}
        assert row == {
            "input_ids": ids + [tiny_tokenizer.pad_id] * rest,
            "input_mask": [1] * len(ids) + [0] * rest,
            "segment_ids": segments + [0] * rest,
        }
    assert {values.dtype for values in found.values()} == {np.dtype("int32")}


def test_padding_and_truncation(tiny_tokenizer):
    long = "the of and " * 200
    cut = tiny_tokenizer([long, "the"], max_seq_length=8)
    assert cut["input_ids"].shape == (2, 8)
    assert cut["input_ids"][0, -1] == tiny_tokenizer.sep_id
    assert tiny_tokenizer([long])["input_ids"].shape == (1, 512)
    whole = tiny_tokenizer([long] * 2, max_seq_length=None, padding="none")
    assert whole["input_ids"][0].tolist() == framed(tiny_tokenizer, long)[0]
    wide = tiny_tokenizer(["the"], max_seq_length=9, padding="max")
    assert wide["input_mask"].tolist() == [[1, 1, 1, 0, 0, 0, 0, 0, 0]]
    assert tiny_tokenizer([])["input_ids"].shape == (0, 2)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ("one", {}, "^texts='one' is one string; give a list of them"),
        (["a"], {"pairs": "b"}, "^pairs='b' is one string"),
        ({"text": ["a"]}, {}, "^texts are a dict; give a column of it"),
        (["a", 3.0], {}, r"^texts\[1\]=3.0 must be a string, or a pair"),
        ([("a", "b", "c")], {}, r"^texts\[0\]=\('a', 'b', 'c'\) must be"),
        (["a", "b"], {"pairs": ["c"]}, "^There are 2 texts and 1 pairs; "),
        (["a"], {"padding": "max_length"}, "not one of longest, max, none"),
        (["a"], {"max_seq_length": 2}, "^max_seq_length=2 must be a whole "),
        (["a"], {"max_seq_length": None, "padding": "max"}, "which is None"),
    ],
)
def test_mistakes_are_one_line(tiny_tokenizer, texts, options, message):
    with pytest.raises(UserError, match=message):
        tiny_tokenizer(texts, **options)
