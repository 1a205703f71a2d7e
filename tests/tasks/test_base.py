"""Model inputs and label numbers of a task."""

import numpy as np
import pytest

from albert_tf.config import UserError
from albert_tf.tasks.base import (
    Example,
    label_names,
    label_numbers,
    pack_single,
)

SPECIAL = {"cls_id": 2, "sep_id": 3, "pad_id": 0}


def test_pack_single():
    packed = pack_single([[7, 8], [], [9] * 9], max_seq_length=6, **SPECIAL)
    assert packed["input_ids"].tolist() == [
        [2, 7, 8, 3, 0, 0],
        [2, 3, 0, 0, 0, 0],
        [2, 9, 9, 9, 9, 3],
    ]
    assert packed["input_mask"].tolist() == [
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1],
    ]
    assert not packed["segment_ids"].any()
    assert {value.dtype for value in packed.values()} == {np.dtype(np.int32)}


@pytest.mark.parametrize(
    ("length", "multiple", "width"),
    [(3, 1, 5), (3, 4, 8), (6, 4, 8), (7, 4, 10), (50, 4, 10)],
)
def test_pack_single_pads_to_a_multiple(length, multiple, width):
    packed = pack_single(
        [[5] * length], max_seq_length=10, multiple=multiple, **SPECIAL
    )
    assert packed["input_ids"].shape == (1, width)


def test_pack_single_of_nothing():
    assert pack_single([], max_seq_length=8, **SPECIAL)["input_ids"].shape == (
        0,
        2,
    )


def test_labels():
    examples = [
        Example((text,), label)
        for text, label in (("a", "no"), ("b", "yes"), ("c", "no"))
    ]
    assert label_names(examples) == ["no", "yes"]
    assert label_numbers(examples, ["no", "yes"], "x").tolist() == [0, 1, 0]
    with pytest.raises(
        UserError, match="dev has the labels yes, .* its labels are no, maybe"
    ):
        label_numbers(examples, ["no", "maybe"], "dev")
