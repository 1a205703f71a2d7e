"""The batch that every side of a comparison is given."""

import numpy as np

from albert_tf.config import ModelConfig, TrainingConfig
from benchmarks.workload import Workload, random_batch

WORK = Workload(
    model=ModelConfig(vocab_size=50),
    batch_size=5,
    seq_length=9,
    num_predictions=4,
    training=TrainingConfig(),
)


def test_nothing_is_padding_and_nothing_predicted_twice():
    batch = random_batch(WORK)
    for name, value in batch.items():
        weights = name.endswith("weights")
        assert value.dtype == (np.float32 if weights else np.int32)
        if weights or name == "input_mask":
            assert (value == 1).all()
    assert batch["masked_lm_positions"].shape == (5, 4)
    for positions in batch["masked_lm_positions"]:
        assert len(set(positions)) == 4
        assert positions.min() >= 0 and positions.max() < 9
    assert batch["input_ids"].max() < 50
    assert len(np.unique(batch["input_ids"])) > 20
    assert batch["segment_ids"][0].tolist() == [0] * 5 + [1] * 4
    for name, value in random_batch(WORK).items():
        np.testing.assert_array_equal(value, batch[name])
