"""MEASURES: what is measured of a pretrained model beside its evaluation.

python -m experiments.programs.measurements MEASURE MODEL_DIR SHARDS OUTPUT.json
"""

import dataclasses
import sys
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.analysis.layer_distances import layer_distances
from albert_tf.config import MaskingConfig
from albert_tf.inputs.input_pipeline import (
    Batch,
    PretrainingBatches,
    sentence_objective,
)
from albert_tf.interchange.model_directory import (
    LoadedModel,
    load_model_directory,
)
from albert_tf.io.json_files import write_json
from albert_tf.jobs.evaluate import evaluate_pretraining
from albert_tf.modeling.accounting import encoder_flops
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.weights.conversion import convert_weights
from albert_tf.records.shards import ShardSet, open_shards
from albert_tf.text.tokenizer_base import SPACE, Tokenizer
from albert_tf.training.evaluator import Evaluator
from albert_tf.training.training_loss import pretraining_loss
from experiments.programs.early_exit import early_exit

_BATCH_SIZE = 32
_NUM_BATCHES = 20
# Batches and masked words of `_words`; tens of thousands of words, so that the
# draw matters little beside what is compared.
_NUM_WORD_BATCHES = 400
_MASKED_WORDS = 0.15
# A seed of the masks, the same for all models.
_SEED = 12345
# Applications of a block that was trained with fewer or more.
DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
# The labels of each output, and their weights.
_LABELS = {
    "masked_lm_logits": ("masked_lm_ids", "masked_lm_weights"),
    "sentence_order_logits": ("sentence_order_labels", "example_weights"),
}


def main(measure: str, model_dir: str, data: str, output: str) -> None:
    """Writes what `measure`, a name in MEASURES, finds."""
    loaded = load_model_directory(model_dir)
    write_json(output, MEASURES[measure](loaded, open_shards(data, "eval")))


def _layers(loaded: LoadedModel, shards: ShardSet) -> dict[str, Any]:
    """Returns the distances of each layer's input and output (Figure 1)."""
    batches = _batches(shards)
    steps = range(min(_NUM_BATCHES, batches.num_steps))
    found = layer_distances(loaded.model, map(batches.batch, steps))
    return {
        "l2_distance": found.l2_distance.tolist(),
        "cosine_similarity": found.cosine_similarity.tolist(),
        "tokens": found.num_tokens,
    }


def _any_depth(loaded: LoadedModel, shards: ShardSet) -> dict[str, Any]:
    """Returns evaluations with more and fewer applications of the block."""
    config = dataclasses.replace(
        loaded.model.config, num_hidden_layers=max(DEPTHS)
    )
    model = AlbertForPretraining(config)
    model.build()
    convert_weights(loaded.model, model)
    evaluator = Evaluator(
        model,
        pretraining_loss(sentence_objective(shards)),
        strategy=tf.distribute.get_strategy(),
    )
    batches = _batches(shards)
    rows = []
    for depth in DEPTHS:
        metrics = evaluate_pretraining(
            evaluator, batches, _NUM_BATCHES, num_applications=depth
        )
        flops = encoder_flops(
            config,
            batch_size=1,
            seq_length=batches.max_seq_length,
            read_positions_only=False,
            num_applications=depth,
        )
        rows.append({"applications": depth, "flops": flops, **metrics})
    trained = loaded.model.config.num_hidden_layers
    return {
        "depths": rows,
        "early_exit": _early_exits(evaluator, batches, trained),
    }


def _early_exits(
    evaluator: Evaluator, batches: PretrainingBatches, applications: int
) -> dict[str, Any]:
    """Returns `early_exit` of each label, after `applications` at most."""
    predictions: dict[str, list] = {name: [] for name in _LABELS}
    labels: dict[str, list] = {name: [] for name in _LABELS}
    for step in range(min(_NUM_BATCHES, batches.num_steps)):
        batch = batches.batch(step)
        after_each = [
            evaluator.evaluation_step(batch, depth, with_outputs=True)[1]
            for depth in range(1, applications + 1)
        ]
        for output, (label, weights) in _LABELS.items():
            counts = batch[weights] > 0
            logits = (outputs[output][counts] for outputs in after_each)
            predictions[output].append([one.argmax(axis=-1) for one in logits])
            labels[output].append(batch[label][counts])
    return {
        output: early_exit(
            np.concatenate(predictions[output], axis=1),
            np.concatenate(labels[output]),
        )
        for output in _LABELS
    }


def _words(loaded: LoadedModel, shards: ShardSet) -> dict[str, Any]:
    """Returns the accuracy and the loss of whole words, for any vocabulary.

    A word is right if all of its pieces are; its loss is the sum of theirs.
    """
    batches = _batches(shards)
    rng = np.random.default_rng(_SEED)
    losses, right, in_order = [], [], []
    for step in range(min(_NUM_WORD_BATCHES, batches.num_steps)):
        batch = _unmasked(batches.batch(step))
        masked, words = mask_words(batch, loaded.tokenizer, rng)
        tensors = {name: tf.constant(value) for name, value in masked.items()}
        outputs = loaded.model(tensors, training=False, heads_only=True)
        logits, labels = outputs["masked_lm_logits"], masked["masked_lm_ids"]
        nats = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        is_wrong = logits.numpy().argmax(axis=-1) != labels
        real = masked["masked_lm_weights"] > 0
        _, word = np.unique(words[real], return_inverse=True)
        losses.append(np.bincount(word, nats.numpy()[real]))
        right.append(np.bincount(word, is_wrong[real]) == 0)
        orders = outputs["sentence_order_logits"].numpy().argmax(axis=-1)
        is_real = batch["example_weights"] > 0
        in_order.append((orders == batch["sentence_order_labels"])[is_real])
    return {
        "words": sum(map(len, right)),
        "word_loss": float(np.concatenate(losses).mean()),
        "word_accuracy": float(np.concatenate(right).mean()),
        "sentence_order_accuracy": float(np.concatenate(in_order).mean()),
    }


def _unmasked(batch: Batch) -> Batch:
    """Returns the batch with the tokens that were masked."""
    ids = batch["input_ids"].copy()
    row, slot = np.nonzero(batch["masked_lm_weights"])
    position = batch["masked_lm_positions"][row, slot]
    ids[row, position] = batch["masked_lm_ids"][row, slot]
    return {**batch, "input_ids": ids}


def mask_words(
    batch: Batch, tokenizer: Tokenizer, rng: np.random.Generator
) -> tuple[Batch, np.ndarray]:
    """Returns the batch with whole words masked, and the word of each slot.

    A word is the letters after a space, up to another character: no
    vocabulary divides a text otherwise. Each is masked with the same
    probability, always by [MASK]: a budget of tokens, as in training, has
    less often room for words of many pieces.
    """
    ids = batch["input_ids"]
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    after_space = np.array([piece.startswith(SPACE) for piece in pieces])[ids]
    letters = np.array([p.strip(SPACE).isalpha() for p in pieces])[ids]
    bare = np.array([piece == SPACE for piece in pieces])[ids]
    # All that is no letter is a part of its own, which no word goes beyond.
    begins = after_space | ~letters
    part = np.cumsum(begins).reshape(ids.shape) - 1
    has_letters = np.bincount(part.ravel(), letters.ravel()) > 0
    is_word = (after_space & (letters | bare))[begins] & has_letters
    is_chosen = is_word & (rng.random(len(is_word)) < _MASKED_WORDS)
    masked = is_chosen[part] & (batch["example_weights"] > 0)[:, None]
    positions = np.argsort(~masked, axis=1, kind="stable")
    positions = positions[:, : max(masked.sum(axis=1).max(), 1)]

    def in_slots(values: np.ndarray) -> np.ndarray:
        return np.take_along_axis(values, positions, axis=1)

    features = {
        "input_ids": np.where(masked, tokenizer.mask_id, ids),
        "masked_lm_positions": positions.astype(np.int32),
        "masked_lm_ids": in_slots(ids),
        "masked_lm_weights": in_slots(masked).astype(np.float32),
    }
    return {**batch, **features}, in_slots(part)


def _batches(shards: ShardSet) -> PretrainingBatches:
    return PretrainingBatches(
        shards,
        masking_config=MaskingConfig(),
        batch_size=_BATCH_SIZE,
        seed=_SEED,
        training=False,
    )


MEASURES = {"layers": _layers, "any_depth": _any_depth, "words": _words}


if __name__ == "__main__":
    main(*sys.argv[1:])
