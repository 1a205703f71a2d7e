"""Evaluation on held-out examples, beside what a guess would reach."""

import math

import numpy as np
import tensorflow as tf

from albert_tf.config import MaskingConfig, UserError
from albert_tf.interchange.model_directory import load_model_directory
from albert_tf.tasks.base import Task, label_numbers
from albert_tf.text.records import open_shards
from albert_tf.training.input_pipeline import (
    ClassificationBatches,
    PretrainingBatches,
    check_shards,
    prefetch,
)
from albert_tf.training.objectives import PretrainingObjective
from albert_tf.training.predict import Predictor
from albert_tf.training.trainer import RunningMeans, Trainer


def _num_steps(
    batches: PretrainingBatches | ClassificationBatches, max_steps: int
) -> int:
    return min(batches.num_steps, max_steps or batches.num_steps)


def evaluate_pretraining(
    trainer: Trainer, batches: PretrainingBatches, max_steps: int = 0
) -> dict[str, float]:
    """Returns the losses and accuracies of both objectives.

    `masked_lm_perplexity` is exp of the loss. Beside `masked_lm_accuracy`
    stands `most_frequent_token_accuracy`, that
    of always guessing the token that is masked most often in these very
    examples; beside `sentence_order_accuracy`, `majority_order_accuracy`.
    """
    means = RunningMeans()
    tokens = np.zeros(1)
    orders = np.zeros(2)
    for batch in prefetch(batches.batch, range(_num_steps(batches, max_steps))):
        means.add(trainer.evaluation_step(batch))
        tokens = _added(
            tokens, batch["masked_lm_ids"], batch["masked_lm_weights"]
        )
        orders = _added(
            orders, batch["sentence_order_labels"], batch["example_weights"]
        )
    results = means.means()
    results["masked_lm_perplexity"] = math.exp(
        min(results["masked_lm_loss"], 700.0)
    )
    results["most_frequent_token_accuracy"] = float(tokens.max() / tokens.sum())
    results["majority_order_accuracy"] = float(orders.max() / orders.sum())
    return results


def _added(
    counts: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Returns counts per label with a batch's weights added."""
    more = np.bincount(labels.ravel(), weights.ravel(), minlength=len(counts))
    more[: len(counts)] += counts
    return more


def evaluate_classification(
    trainer: Trainer, batches: ClassificationBatches, max_steps: int = 0
) -> dict[str, float]:
    """Returns `loss`, `accuracy` and `majority_class_accuracy`."""
    means = RunningMeans()
    labels = np.zeros(1)
    for batch in prefetch(batches.batch, range(_num_steps(batches, max_steps))):
        means.add(trainer.evaluation_step(batch))
        labels = _added(labels, batch["label_ids"], batch["example_weights"])
    results = means.means()
    results["majority_class_accuracy"] = float(labels.max() / labels.sum())
    return results


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
    if loaded.labels:
        raise UserError(
            f"{model_dir} holds a classifier; --task=pretraining needs a "
            "pretrained model."
        )
    shards = open_shards(data, split)
    check_shards(loaded.model.config, shards, loaded.tokenizer)
    trainer = Trainer(
        loaded.model,
        PretrainingObjective(),
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


def evaluate_predictions(
    model_dir: str, task: Task, data_dir: str, *, split: str, batch_size: int
) -> tuple[dict[str, float], list[dict]]:
    """Returns the task's metrics and baselines, and a row per example.

    Raises:
        UserError: when the model is not a classifier, or an example has a
            label that it does not know.
    """
    examples = task.read_examples(data_dir, split)
    loaded = load_model_directory(model_dir)
    if not loaded.labels:
        raise UserError(
            f"{model_dir} does not hold a classifier; fine-tune one first."
        )
    labels = label_numbers(examples, loaded.labels, f"{data_dir} ({split})")
    predictor = Predictor(loaded, batch_size)
    answers = list(predictor.classify([e.text for e in examples]))
    predicted = np.array([loaded.labels.index(a.label) for a in answers])
    metrics = {
        name: metric(labels, predicted)
        for name, metric in {**task.metrics, **task.baselines}.items()
    }
    rows = [
        {
            "text": example.text,
            "label": example.label,
            "prediction": answer.label,
            "probabilities": answer.probabilities,
        }
        for example, answer in zip(examples, answers, strict=True)
    ]
    return metrics, rows
