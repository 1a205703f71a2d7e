import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.records import example_wire
from albert_tf.records.example_wire import encode_examples


def oracle(example):
    """protobuf's own bytes of {name: list of int, or of float}."""
    features = {}
    for name, values in example.items():
        if values.dtype.kind == "f":
            kind = {"float_list": tf.train.FloatList(value=values.tolist())}
        else:
            kind = {"int64_list": tf.train.Int64List(value=map(int, values))}
        features[name] = tf.train.Feature(**kind)
    message = tf.train.Example(features=tf.train.Features(feature=features))
    return message.SerializeToString(deterministic=True)


def check(columns):
    arrays, parts = {}, {}
    for name, (values, sizes) in columns.items():
        arrays[name] = np.asarray(values), np.asarray(sizes)
        parts[name] = np.split(np.asarray(values), np.cumsum(sizes)[:-1])
    examples = zip(*parts.values(), strict=True)
    assert encode_examples(arrays) == [
        oracle(dict(zip(parts, example, strict=True))) for example in examples
    ]


# Values of every length of varint, those at the borders among them.
BORDERS = [0, 1, *(2**k + d for k in range(7, 63, 7) for d in (-1, 0))]
INTEGERS = st.one_of(
    st.sampled_from([*BORDERS, 2**63 - 1]),
    st.integers(0, 300),
    st.integers(0, 2**63 - 1),
)
FLOATS = st.floats(width=32, allow_nan=False)


# No name begins another one: these protobuf's implementations sort
# differently.
NAMES = st.text("abzé_").map("{}.".format)


def columns_of(number):
    """Columns, lists of values by name, of so many examples."""
    lists = [
        st.lists(st.lists(v, max_size=5), min_size=number, max_size=number)
        for v in (INTEGERS, st.integers(0, 99), FLOATS)
    ]
    return st.dictionaries(NAMES, st.one_of(*lists), min_size=1)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4).flatmap(columns_of))
def test_the_bytes_are_those_of_protobuf(columns):
    check(
        {
            name: (list(itertools.chain(*lists)), list(map(len, lists)))
            for name, lists in columns.items()
        }
    )


def test_every_length_of_varint_and_of_list():
    for value in BORDERS:
        check({"ids": ([value, 0, value, 1, value], [2, 0, 3])})
    for length in (0, 1, 127, 128, 16383, 16384):
        check({"ids": (np.arange(length) % 100, [length])})


@pytest.mark.parametrize("kind", ["float32", "float64", ">f4"])
def test_floats_are_little_endian_float32(kind):
    values = np.array([0.1, -1.5, 3e38, np.inf, 0.0, -0.0], kind)
    (encoded,) = encode_examples({"weights": (values, np.array([6]))})
    assert encoded == oracle({"weights": values.astype(np.float32)})


@pytest.mark.parametrize("kind", ["bool", "i1", "i2", "i4", "u1", "u8", ">i4"])
def test_every_kind_of_integer(kind):
    values = np.array([0, 1, 100, 1000, 100000, 1] * 2)
    if np.dtype(kind).itemsize < 4:
        values %= 2 if kind == "bool" else 128
    check({"ids": (values.astype(kind), [6, 0, 6])})


def test_blocks_of_values_are_joined(monkeypatch):
    rng = np.random.default_rng(5)
    values = rng.integers(0, 2**22, 100) >> rng.integers(0, 22, 100)
    sizes = [0, 7, 1, 0, 0, 30, 2, 0, 60, 0]
    for block in (1, 7, 8, 9, 99, 100, 101):
        monkeypatch.setattr(example_wire, "_BLOCK", block)
        check({"ids": (values, sizes), "labels": (np.ones(10, int), [1] * 10)})


@pytest.mark.parametrize(
    "values", [np.array([3, -1]), np.array([1, 2**63], np.uint64)]
)
def test_integers_that_have_no_short_varint_are_refused(values):
    with pytest.raises(ValueError, match="'ids' has a value outside"):
        encode_examples({"ids": (values, np.array([2]))})


def test_columns_of_unequal_numbers_are_refused():
    one = np.zeros(2, int), np.array([1, 1])
    other = np.zeros(2, int), np.array([2])
    with pytest.raises(ValueError, match="shorter"):
        encode_examples({"a": one, "b": other})
