"""Evaluation of pretraining, beside what a guess would reach."""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf.config import MaskingConfig
from albert_tf.inputs.input_pipeline import (
    PretrainingBatches,
    check_shards,
    prefetch,
    sentence_objective,
)
from albert_tf.interchange.model_directory import load_model_directory
from albert_tf.records.shards import open_shards
from albert_tf.records.targets import Target
from albert_tf.training.objectives import pretraining_objective
from albert_tf.training.running_statistics import RunningMeans
from albert_tf.training.trainer import Trainer


def evaluate_pretraining(
    trainer: Trainer,
    batches: PretrainingBatches,
    max_steps: int = 0,
    num_applications: int | None = None,
) -> dict[str, float]:
    """Returns the loss and the accuracy of each target of pretraining.

    `masked_lm_perplexity` is exp of the loss. Beside each accuracy stands its
    majority-class baseline on these very examples (see records/targets.py).
    `loss` is the sum of the losses, which training minimises.
    """
    means, guesses = _evaluate(trainer, batches, max_steps, num_applications)
    losses = [means[target.loss] for target in trainer.objective.targets]
    perplexity = math.exp(min(means["masked_lm_loss"], 700.0))
    return {
        "loss": sum(losses),
        **means,
        "masked_lm_perplexity": perplexity,
        **guesses,
    }


def pretraining_measures(targets: Sequence[Target]) -> set[str]:
    """Returns the names of what `evaluate_pretraining` gives."""
    names = {"loss", "masked_lm_perplexity"}
    for target in targets:
        names |= {target.loss, target.accuracy, target.baseline}
    return names


def _evaluate(
    trainer: Trainer,
    batches: PretrainingBatches,
    max_steps: int,
    num_applications: int | None,
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the mean of every measure, and what guessing would reach."""
    means = RunningMeans()
    targets = trainer.objective.targets
    counts: dict[str, np.ndarray] = {}
    rows = trainer.evaluation_rows(batches.batch_size)
    num_steps = min(batches.num_steps, max_steps or batches.num_steps)
    for batch in prefetch(
        lambda step: batches.batch(step, rows), range(num_steps)
    ):
        results, of_labels = trainer.evaluation_step(batch, num_applications)
        means.add(results)
        for name, count in of_labels.items():
            counts[name] = counts.get(name, 0) + count.astype(np.float64)
    guesses = {
        target.baseline: float(
            counts[target.baseline].max() / counts[target.baseline].sum()
        )
        for target in targets
    }
    return means.means(), guesses


def evaluate_pretrained(
    model_dir: str,
    data: str,
    *,
    split: str,
    batch_size: int,
    seed: int,
    masking: MaskingConfig | None = None,
) -> dict[str, float]:
    """Returns what `evaluate_pretraining` gives, of a model directory.

    Args:
        model_dir: of a pretrained model.
        data: a directory of shards, or a glob.
        split: of the shards.
        batch_size: sequences at a time.
        seed: of the masks.
        masking: how dynamic records are masked; by default as in the paper.

    Raises:
        UserError: when the model has no pretraining heads or cannot read
            these shards.
    """
    loaded = load_model_directory(model_dir)
    for head in ("masked_lm", "sentence_order"):
        loaded.require_head(
            head, model_dir, "--task=pretraining needs a pretrained model."
        )
    shards = open_shards(data, split)
    check_shards(loaded.model.config, shards, loaded.tokenizer)
    trainer = Trainer(
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
