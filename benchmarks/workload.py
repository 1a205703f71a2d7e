"""A training step as a workload: its flags, and a random batch of its shape."""

import dataclasses

import numpy as np
from absl import flags

from albert_tf.config import (
    PRESETS,
    MaskingConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainConfig,
    TrainingConfig,
    override,
    preset,
    require,
)
from bin import command_line

FLAGS = flags.FLAGS
# --helpshort lists them as flags of the program.
flags.disclaim_key_flags()


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


def define_flags() -> None:
    """Defines the flags of a step on a device."""
    flags.DEFINE_enum("preset", "base", list(PRESETS), "The model.")
    flags.DEFINE_integer(
        "batch_size", 64, "Sequences of a step on each device.", lower_bound=1
    )
    flags.DEFINE_integer(
        "max_seq_length", 512, "Tokens of a sequence.", lower_bound=8
    )


def of_flags() -> Workload:
    """Returns the workload of these flags, and of those of its settings."""
    model = override(PretrainConfig(), preset(FLAGS.preset)).model
    length, longest = FLAGS.max_seq_length, model.max_position_embeddings
    require(
        length <= longest,
        f"--max_seq_length={length} is more than the {longest} tokens that "
        f"--preset={FLAGS.preset} reads.",
    )
    return Workload(
        model=model,
        batch_size=FLAGS.batch_size,
        seq_length=length,
        num_predictions=MaskingConfig().prediction_slots(length),
        training=command_line.with_flags(TrainingConfig()),
        optimizer=command_line.with_flags(OptimizerConfig()),
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
