"""Evaluation of pretraining, with majority-class baselines."""

import collections
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import MaskingConfig
from albert_tf.inputs.input_pipeline import (
    Batch,
    PretrainingBatches,
    check_shards,
    masking_of,
    sentence_objective,
)
from albert_tf.inputs.prefetch import prefetch
from albert_tf.inputs.source_schedule import Source
from albert_tf.interchange.model_directory import load_model_directory
from albert_tf.records.loss_terms import LossTerm
from albert_tf.records.shards import open_shards
from albert_tf.report.sample_predictions import MaskedSample, masked_samples
from albert_tf.text.tokenizer_base import Tokenizer
from albert_tf.training.evaluator import Evaluator
from albert_tf.training.training_loss import pretraining_loss

# Held-out segments whose predictions are shown.
NUM_SAMPLES = 4


def evaluate_pretraining(
    evaluator: Evaluator,
    batches: Source,
    max_steps: int = 0,
    num_applications: int | None = None,
) -> dict[str, float]:
    """Returns the loss and the accuracy of each term of the training loss.

    Beside them are `loss`, the sum of the losses, `masked_lm_perplexity`, and
    the majority-class baseline of each accuracy on the same examples.
    """
    terms = evaluator.training_loss.terms
    label_counts: dict[str, Any] = collections.defaultdict(float)

    def add(step: int, counts: dict[str, np.ndarray]) -> None:
        for name, of_classes in counts.items():
            label_counts[name] += of_classes.astype(np.float64)

    metrics = evaluator.evaluate(
        batches, add, max_steps=max_steps, num_applications=num_applications
    )
    return {
        "loss": sum(metrics[term.loss] for term in terms),
        **metrics,
        "masked_lm_perplexity": math.exp(min(metrics["masked_lm_loss"], 700.0)),
        **{
            term.baseline: float(
                label_counts[term.baseline].max()
                / label_counts[term.baseline].sum()
            )
            for term in terms
        },
    }


def pretraining_metric_names(terms: Sequence[LossTerm]) -> list[str]:
    """Returns the names of what `evaluate_pretraining` returns."""
    names = ["loss", "masked_lm_perplexity"]
    for term in terms:
        names += [term.loss, term.accuracy, term.baseline]
    return names


def held_out_samples(
    tokenizer: Tokenizer,
    batches: Source,
    outputs_of: Callable[[Batch], Mapping[str, Any]],
    timeout: float = math.inf,
) -> list[MaskedSample]:
    """Returns the first held-out segments with a model's predictions.

    Raises InputStalled where reading them takes more than `timeout` seconds.
    """
    (batch,) = prefetch(
        lambda number: batches.batch(number, range(NUM_SAMPLES)),
        [0],
        timeout=timeout,
    )
    logits = np.asarray(outputs_of(batch)["masked_lm_logits"])
    return masked_samples(tokenizer, batch, logits)


def evaluate_pretrained(
    model_dir: str,
    data: str,
    *,
    split: str,
    batch_size: int,
    seed: int,
    masking: MaskingConfig | None = None,
) -> dict[str, float]:
    """Returns the metrics of `evaluate_pretraining` for a model directory.

    `data` is a directory of shards, or a glob; seed and masking are those of
    dynamic records, and a masking of others has to be theirs.

    Raises:
        UserError: for a model without the heads of pretraining, or shards that
            do not fit it.
    """
    loaded = load_model_directory(model_dir)
    for head in ("masked_lm", "sentence_order"):
        loaded.require_head(
            head, model_dir, "--task=pretraining needs a pretrained model."
        )
    shards = open_shards(data, split)
    check_shards(loaded.model.config, shards, loaded.tokenizer)
    evaluator = Evaluator(
        loaded.model,
        pretraining_loss(sentence_objective(shards)),
        strategy=tf.distribute.get_strategy(),
    )
    batches = PretrainingBatches(
        shards,
        masking_config=masking_of(shards, masking or MaskingConfig()),
        batch_size=batch_size,
        seed=seed,
        training=False,
    )
    return evaluate_pretraining(evaluator, batches)
