"""Evaluation of pretraining, with majority-class baselines."""

import collections
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.cluster.distribution import local_rows
from albert_tf.config import MaskingConfig
from albert_tf.inputs.input_pipeline import (
    PretrainingBatches,
    check_shards,
    sentence_objective,
)
from albert_tf.inputs.prefetch import prefetch
from albert_tf.interchange.model_directory import load_model_directory
from albert_tf.records.shards import open_shards
from albert_tf.records.targets import Target
from albert_tf.training.evaluator import Evaluator
from albert_tf.training.objectives import pretraining_objective
from albert_tf.training.running_statistics import RunningMeans


def evaluate_pretraining(
    trainer: Evaluator,
    batches: PretrainingBatches,
    max_steps: int = 0,
    num_applications: int | None = None,
) -> dict[str, float]:
    """Returns the loss and the accuracy of each target of pretraining.

    And `loss`, the sum of the losses, `masked_lm_perplexity`, and the
    majority-class baseline of each accuracy on the same examples.
    """
    means = RunningMeans()
    targets = trainer.objective.targets
    label_counts: dict[str, Any] = collections.defaultdict(float)
    rows = local_rows(batches.batch_size, trainer.strategy)
    num_steps = min(batches.num_steps, max_steps or batches.num_steps)
    for batch in prefetch(
        lambda step: batches.batch(step, rows), range(num_steps)
    ):
        results, counts = trainer.evaluation_step(batch, num_applications)
        means.add(results)
        for name, count in counts.items():
            label_counts[name] += count.astype(np.float64)
    metrics = means.means()
    return {
        "loss": sum(metrics[target.loss] for target in targets),
        **metrics,
        "masked_lm_perplexity": math.exp(min(metrics["masked_lm_loss"], 700.0)),
        **{
            target.baseline: float(
                label_counts[target.baseline].max()
                / label_counts[target.baseline].sum()
            )
            for target in targets
        },
    }


def pretraining_metric_names(targets: Sequence[Target]) -> list[str]:
    """Returns the names of what `evaluate_pretraining` returns."""
    names = ["loss", "masked_lm_perplexity"]
    for target in targets:
        names += [target.loss, target.accuracy, target.baseline]
    return names


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
    dynamic records.
    """
    loaded = load_model_directory(model_dir)
    for head in ("masked_lm", "sentence_order"):
        loaded.require_head(
            head, model_dir, "--task=pretraining needs a pretrained model."
        )
    shards = open_shards(data, split)
    check_shards(loaded.model.config, shards, loaded.tokenizer)
    trainer = Evaluator(
        loaded.model,
        pretraining_objective(sentence_objective(shards)),
        strategy=tf.distribute.get_strategy(),
    )
    batches = PretrainingBatches(
        shards,
        masking_config=masking or MaskingConfig(),
        batch_size=batch_size,
        seed=seed,
        training=False,
    )
    return evaluate_pretraining(trainer, batches)
