"""Sums over the rows of a batch, one piece after the other."""

import pytest
import tensorflow as tf

from albert_tf.training.accumulation import accumulate

# Three parts of two rows; beyond the widths there is only padding.
IDS = [[1, 2, 0], [3, 0, 0], [4, 5, 0], [6, 0, 0], [7, 8, 9], [1, 2, 3]]
WIDTHS = (2, 2, 3)


@pytest.mark.parametrize(
    ("micro_batch_size", "shapes"),
    [
        # Parts of one width are computed together.
        (6, [(4, 2), (2, 3)]),
        (2, [(2, 2), (2, 2), (2, 3)]),
    ],
)
def test_every_row_counts_once_and_as_wide_as_its_part(
    micro_batch_size, shapes
):
    found = []

    def compute(features, keys):
        found.append(tuple(features["input_ids"].shape))
        sums = {name: tf.reduce_sum(v) for name, v in features.items()}
        return sums, {"keys": tf.reduce_sum(keys)}

    sums, gradients = accumulate(
        compute,
        {"input_ids": tf.constant(IDS), "label_ids": tf.range(6)},
        10 * tf.range(6),
        micro_batch_size=micro_batch_size,
        part_widths=WIDTHS,
        sequence_features={"input_ids"},
    )
    assert (sums["input_ids"], sums["label_ids"]) == (sum(map(sum, IDS)), 15)
    assert gradients["keys"] == 150
    assert found == shapes
