"""Held-out examples whose texts are in training too."""

from albert_tf.tasks.duplicates import duplicates, duplicates_line
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.classification import Classification

KIND = Classification()
TRAIN = [
    Example(("A  good day",), "yes", "d/train.tsv:2"),
    Example(("Snow", "Ice"), "no", "d/train.tsv:3"),
]
DEV = [
    Example(("a good\tDAY",), "yes", "d/dev.tsv:2"),
    Example(("Snow",), "no", "d/dev.tsv:3"),
]


def test_equal_texts_up_to_case_and_white_space():
    assert duplicates(KIND, TRAIN, DEV) == [(DEV[0], TRAIN[0])]


def test_a_pair_may_be_in_either_order():
    swapped = Example(("ice", "snow"), "no", "d/dev.tsv:4")
    assert duplicates(KIND, TRAIN, [swapped]) == [(swapped, TRAIN[1])]


def test_a_warning_names_some():
    assert duplicates_line(KIND, TRAIN, DEV * 6, "dev") == (
        "WARNING: 6 of 12 dev examples (50.0%) have all the texts of a "
        "training example, up to order, case and white space; the results on "
        "them say nothing about new texts. "
        + ", ".join(5 * ["dev.tsv:2 = train.tsv:2"])
        + " and 1 others."
    )
    assert not duplicates_line(KIND, TRAIN, DEV[1:], "dev")
