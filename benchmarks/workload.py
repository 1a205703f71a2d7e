"""The workload of a training step, and a random batch of its shape."""

import dataclasses

import numpy as np

from albert_tf.config import ModelConfig, OptimizerConfig, TrainingConfig


@dataclasses.dataclass(frozen=True)
class Workload:
    """The model, batch shape and settings of a training step."""

    model: ModelConfig
    batch_size: int
    seq_length: int
    num_predictions: int
    training: TrainingConfig
    optimizer: OptimizerConfig = dataclasses.field(
        default_factory=OptimizerConfig
    )


def random_batch(work: Workload) -> dict[str, np.ndarray]:
    """Returns features and labels of pretraining, the same at every call.

    No token is padding, no position predicted twice; all weights are 1.
    """
    rng = np.random.default_rng(1)
    shape = (work.batch_size, work.seq_length)
    slots = (work.batch_size, work.num_predictions)
    order = rng.permuted(
        np.tile(np.arange(work.seq_length), (work.batch_size, 1)), axis=1
    )
    vocab_size = work.model.vocab_size
    batch = {
        "input_ids": rng.integers(vocab_size, size=shape),
        "input_mask": np.ones(shape),
        "segment_ids": np.tile(
            np.arange(work.seq_length) * 2 // work.seq_length,
            (work.batch_size, 1),
        ),
        "masked_lm_positions": np.sort(order[:, : work.num_predictions]),
        "masked_lm_ids": rng.integers(vocab_size, size=slots),
        "sentence_order_labels": rng.integers(2, size=work.batch_size),
        "example_numbers": np.arange(work.batch_size),
    }
    return {
        **{name: value.astype(np.int32) for name, value in batch.items()},
        "masked_lm_weights": np.ones(slots, np.float32),
        "example_weights": np.ones(work.batch_size, np.float32),
    }
