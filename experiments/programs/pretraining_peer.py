"""Pretrains the ALBERT of transformers as bin.pretrain would train ours.

python -m experiments.programs.pretraining_peer SETTINGS.json SHARDS RUN_DIR

The architecture, the batches with their masks, the schedule and the held-out
batches are those of bin.pretrain with the same settings; the model, its
initialisation and AdamW are those of transformers and PyTorch. Writes the
metrics.jsonl and timing.jsonl of a run. Started again, it begins anew.
"""

import json
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from albert_tf.config import PretrainConfig, from_dict
from albert_tf.inputs.input_pipeline import PretrainingBatches
from albert_tf.inputs.prefetch import prefetch
from albert_tf.io.json_files import read_json
from albert_tf.records.shards import open_shards
from albert_tf.rundir.run_results import METRICS_FILE, TIMING_FILE
from experiments.programs.transformers_albert import (
    IGNORED_LABEL,
    albert_of_transformers,
    inputs_of_transformers,
)

# Names of weights that the Trainer of transformers does not decay.
_NOT_DECAYED = ("bias", "LayerNorm", "layer_norm")


def main(settings: str, shards: str, run_dir: str) -> None:
    """Trains, and writes the logs."""
    values = read_json(settings)["config"]
    config = from_dict(PretrainConfig, values, settings)
    os.makedirs(run_dir, exist_ok=True)
    with (
        open(os.path.join(run_dir, METRICS_FILE), "w") as metrics_log,
        open(os.path.join(run_dir, TIMING_FILE), "w") as timing_log,
    ):
        for metrics, timing in pretrain(config, shards):
            print(json.dumps(metrics), file=metrics_log, flush=True)
            print(json.dumps(timing), file=timing_log, flush=True)


def batches(
    config: PretrainConfig, data: str, split: str
) -> PretrainingBatches:
    """Returns the batches that bin.pretrain reads with these settings."""
    training = config.training
    return PretrainingBatches(
        open_shards(data, split),
        masking_config=config.masking,
        batch_size=training.train_batch_size
        if split == "train"
        else training.eval_batch_size,
        seed=training.seed,
        training=split == "train",
    )


def pretrain(
    config: PretrainConfig, data: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Trains, and yields the metrics and the timing of every evaluation."""
    import torch

    training = config.training
    torch.manual_seed(training.seed)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = albert_of_transformers(config.model, "sdpa")
    optimizer, schedule = _optimizer(config, model)
    # Faster than without it; evaluations are not timed.
    forward = torch.compile(model)
    source, held_out = (batches(config, data, n) for n in ("train", "eval"))
    for step, batch in enumerate(
        prefetch(source.batch, range(training.num_train_steps)), start=1
    ):
        inputs = _tensors(batch)
        model.train()
        optimizer.zero_grad()
        with torch.autocast(
            "cpu", torch.bfloat16, enabled=training.precision == "bfloat16"
        ):
            loss = forward(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(
            model.parameters(), config.optimizer.max_grad_norm or math.inf
        )
        optimizer.step()
        schedule.step()
        # The first step compiles.
        if step == 1:
            started, timed_from = time.perf_counter(), 1
        is_last = step == training.num_train_steps
        if step == 1 or (step % training.eval_steps and not is_last):
            continue
        rate = (step - timed_from) / (time.perf_counter() - started)
        metrics = evaluate(model, held_out, training.max_eval_steps)
        yield (
            {"step": step, "split": "eval", **metrics},
            {
                "step": step,
                "sequences_per_second": rate * training.train_batch_size,
            },
        )
        started, timed_from = time.perf_counter(), step


def evaluate(
    model: Any, held_out: PretrainingBatches, max_steps: int
) -> dict[str, float]:
    """Returns the metrics of bin.pretrain's evaluation, in float32.

    Losses and accuracies are means over all tokens and all instances.
    """
    import torch

    model.eval()
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    frequencies = torch.zeros(model.config.vocab_size)
    num_steps = min(held_out.num_steps, max_steps or held_out.num_steps)
    for batch in prefetch(held_out.batch, range(num_steps)):
        inputs = _tensors(batch)
        tokens, order = inputs.pop("labels"), inputs.pop("sentence_order_label")
        predicted = tokens != IGNORED_LABEL
        frequencies += tokens[predicted].bincount(minlength=len(frequencies))
        real = torch.tensor(batch["example_weights"]) > 0
        with torch.inference_mode():
            states, pooled = model.albert(**inputs)[:2]
            # The logits of other positions are not needed.
            words = model.predictions(states[predicted])
            orders = model.sop_classifier(pooled[real])
        for name, logits, labels in (
            ("masked_lm", words, tokens[predicted]),
            ("sentence_order", orders, order[real]),
        ):
            loss = torch.nn.functional.cross_entropy(
                logits, labels, reduction="sum"
            )
            correct = (logits.argmax(-1) == labels).sum()
            for metric, value in (("loss", loss), ("accuracy", correct)):
                sums[f"{name}_{metric}"] += float(value)
                counts[f"{name}_{metric}"] += len(labels)
    metrics = {name: total / counts[name] for name, total in sums.items()}
    guessing = float(frequencies.max() / frequencies.sum())
    return {
        "loss": metrics["masked_lm_loss"] + metrics["sentence_order_loss"],
        **metrics,
        "most_frequent_token_accuracy": guessing,
    }


def _optimizer(config: PretrainConfig, model: Any) -> tuple[Any, Any]:
    """Returns AdamW, and linear warm-up with linear decay to 0."""
    import torch
    import transformers

    decayed: list[Any] = []
    others: list[Any] = []
    for name, weight in model.named_parameters():
        kept = any(part in name for part in _NOT_DECAYED)
        (others if kept else decayed).append(weight)
    settings = config.optimizer
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": settings.weight_decay_rate},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        betas=(settings.beta_1, settings.beta_2),
        eps=settings.epsilon,
        fused=True,
    )
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, settings.num_warmup_steps, config.training.num_train_steps
    )
    return optimizer, schedule


def _tensors(batch: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {
        name: torch.from_numpy(array)
        for name, array in inputs_of_transformers(batch).items()
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
