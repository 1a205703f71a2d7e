"""What a report says of the data."""

import types

import numpy as np

from albert_tf.report.data_section import data_section
from albert_tf.report.page import Paragraph, Table
from albert_tf.tasks.examples import Example
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.classification import Classification

# Ids of special pieces alone matter.
TOKENIZER = types.SimpleNamespace(unk_id=1, cls_id=2, sep_id=3)
KIND = Classification()
TRAIN = [
    Example(("A  good day",), "yes", "d/train.tsv:2"),
    Example(("Rain",), "no", "d/train.tsv:3"),
    Example(("Sun",), "no", "d/train.tsv:4"),
    Example(("Snow", "Ice"), "no", "d/train.tsv:5"),
]
DEV = [
    Example(("a good\tDAY",), "yes", "d/dev.tsv:2"),
    Example(("Snow",), "no", "d/dev.tsv:3"),
]


def features(lengths, truncated=()):
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.full(offsets[-1], 5, np.int32)
    ids[:3] = [2, 1, 5]
    numbers = np.arange(len(lengths))
    return Features(
        {"input_ids": ids}, offsets, {}, {}, numbers, truncated=truncated
    )


def parts(dev):
    built = {
        "train": features([4, 6, 5, 9], [3]),
        "dev": features([3] * len(dev)),
    }
    splits = {"train": TRAIN, "dev": dev}
    return data_section(KIND, splits, built, TOKENIZER).parts


def test_counts_and_shares():
    counts, _, shares, _ = parts(DEV)
    assert isinstance(counts, Table)
    assert counts.rows == [
        ["train", "4", "4", "6.0", "9", "25.0%", "4.3%"],
        ["dev", "2", "2", "3.0", "3", "0.0%", "20.0%"],
    ]
    assert shares.rows == [["no", "75.0%", "50.0%"], ["yes", "25.0%", "50.0%"]]


def test_duplicates_are_a_warning():
    (text,) = (p.text for p in parts(DEV) if isinstance(p, Paragraph))
    assert text.startswith("WARNING: 1 of 2 dev examples (50.0%) have all ")
    assert text.endswith("dev.tsv:2 = train.tsv:2.")
    (text,) = (p.text for p in parts(DEV[1:]) if isinstance(p, Paragraph))
    assert text == "No example of dev has all the texts of a training example."
