"""The pieces that a model gets wrong, as weights of its masks from now on.

python -m experiments.programs.piece_errors MODEL_DIR SHARDS OUTPUT.json
"""

import sys

import numpy as np
import tensorflow as tf

from albert_tf.config import MaskingConfig
from albert_tf.inputs.input_pipeline import PretrainingBatches
from albert_tf.interchange.model_directory import load_model_directory
from albert_tf.io.json_files import write_json
from albert_tf.records.shards import open_shards

_BATCH_SIZE = 64
# Batches of the text that training continues on: some 120,000 masked tokens.
_NUM_BATCHES = 200
# Masked tokens with the mean error that every piece has beside its own, since
# most pieces are met a few times.
_PRIOR = 10
# The seed of the masks, other than those of training.
_SEED = 54321


def main(model_dir: str, data: str, output: str) -> None:
    """Writes the share of wrong answers of each piece, as --masking_weights."""
    loaded = load_model_directory(model_dir)
    batches = PretrainingBatches(
        open_shards(data, "train"),
        masking_config=MaskingConfig(),
        batch_size=_BATCH_SIZE,
        seed=_SEED,
        training=True,
    )
    size = loaded.tokenizer.vocab_size
    masked, wrong = np.zeros(size), np.zeros(size)
    for step in range(_NUM_BATCHES):
        batch = batches.batch(step)
        tensors = {name: tf.constant(value) for name, value in batch.items()}
        outputs = loaded.model(tensors, training=False, heads_only=True)
        answers = np.argmax(outputs["masked_lm_logits"], axis=-1)
        labels = batch["masked_lm_ids"]
        real = batch["masked_lm_weights"] > 0
        masked += np.bincount(labels[real], minlength=size)
        wrong += np.bincount(labels[real & (answers != labels)], minlength=size)
    pieces = loaded.tokenizer.pieces(range(size))
    weights = smoothed_errors(masked, wrong).tolist()
    write_json(output, dict(zip(pieces, weights, strict=True)))


def smoothed_errors(masked: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Returns the share of wrong answers `[vocab]`, near the mean where rare.

    Args:
        masked, wrong: `[vocab]` how often each piece was masked, and answered
            by another.
    """
    mean = wrong.sum() / masked.sum()
    return (wrong + _PRIOR * mean) / (masked + _PRIOR)


if __name__ == "__main__":
    main(*sys.argv[1:])
