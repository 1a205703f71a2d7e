"""The batch that every side of a comparison is given."""

import numpy as np

from albert_tf.config import ModelConfig, TrainingConfig
from albert_tf.jobs.workload import Workload, random_batch

WORK = Workload(
    model=ModelConfig(vocab_size=50),
    batch_size=5,
    seq_length=9,
    num_predictions=4,
    training=TrainingConfig(),
)


def test_nothing_is_padding_and_nothing_predicted_twice():
    batch = random_batch(WORK)
    sequences = {"input_ids", "input_mask", "segment_ids"}
    slots = {"masked_lm_positions", "masked_lm_ids", "masked_lm_weights"}
    examples = {"sentence_order_labels", "example_weights", "example_numbers"}
    assert set(batch) == sequences | slots | examples
    for name, value in batch.items():
        shape = (5, 9) if name in sequences else (5, 4)
        assert value.shape == ((5,) if name in examples else shape)
        weights = name.endswith("weights")
        assert value.dtype == (np.float32 if weights else np.int32)
        if weights or name == "input_mask":
            assert (value == 1).all()
    for positions in batch["masked_lm_positions"]:
        assert len(set(positions)) == 4
        assert positions.min() >= 0 and positions.max() < 9
    # Not the same positions in every sequence.
    assert len(np.unique(batch["masked_lm_positions"])) > 4
    assert batch["input_ids"].max() < 50
    assert len(np.unique(batch["input_ids"])) > 20
    assert batch["segment_ids"][0].tolist() == [0] * 5 + [1] * 4
    for name, value in random_batch(WORK).items():
        np.testing.assert_array_equal(value, batch[name])
