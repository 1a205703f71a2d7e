"""Pretrains the ALBERT of transformers as bin.pretrain would train ours.

python -m bin.benchmarking.pretraining_peer --config_json=run.json \\
    --train_data=shards --eval_data=shards --run_dir=runs/peer

The architecture, the batches with their masks, the schedule and the held-out
batches are those of bin.pretrain with the same settings; the model, its
initialisation and AdamW are those of transformers and PyTorch. Writes the
metrics.jsonl and timing.jsonl of a run. Started again, it begins anew.
"""

import itertools
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from absl import flags

from albert_tf.config import (
    MaskingConfig,
    PretrainConfig,
    override,
    require,
    setting_fields,
    shares_whole_groups,
    to_dict,
)
from albert_tf.experiments.recipe import flops_per_step
from albert_tf.inputs.input_pipeline import PretrainingBatches
from albert_tf.inputs.prefetch import prefetch
from albert_tf.records.shards import open_shards
from albert_tf.rundir.run_results import METRICS_FILE, TIMING_FILE
from bin import command_line, training_programs
from bin.benchmarking.harness import require_packages
from bin.benchmarking.transformers_peer import (
    IGNORED_LABEL,
    TransformersSide,
    albert_for_pretraining,
    pretraining_inputs,
)

FLAGS = flags.FLAGS

# What the Trainer of transformers does not decay.
_NOT_DECAYED = ("bias", "LayerNorm", "layer_norm")

# Settings that the peer takes over, or checks by a rule of its own.
_TAKEN_OVER = frozenset(
    (
        *setting_fields(MaskingConfig()),
        # The architecture.
        *("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers"),
        *("num_hidden_groups", "inner_group_num", "num_attention_heads"),
        *("intermediate_size", "hidden_act", "hidden_dropout_prob"),
        *("attention_probs_dropout_prob", "classifier_dropout_prob"),
        *("max_position_embeddings", "type_vocab_size", "initializer_range"),
        *("layer_norm_eps", "sharing", "sentence_objective"),
        # The optimizer and the run.
        *("learning_rate", "num_warmup_steps", "weight_decay_rate"),
        *("beta_1", "beta_2", "epsilon", "max_grad_norm", "num_train_steps"),
        *("train_batch_size", "eval_batch_size", "seed", "precision"),
        *("eval_steps", "max_eval_steps"),
    )
)
# Settings that change no result of AdamW: how a step is computed, what is
# logged and saved. PyTorch's AdamW always corrects the bias, which is part of
# the peer.
_WITHOUT_EFFECT = frozenset(
    (
        *("micro_batch_size", "steps_per_loop", "xla", "remat"),
        *("pack_sequences", "save_checkpoints_steps", "keep_checkpoint_max"),
        *("log_steps", "best_metric", "on_nonfinite", "bias_correction"),
        *("exclude_from_layer_adaptation", "always_project_embeddings"),
    )
)


def define_flags() -> None:
    flags.DEFINE_string("config_json", None, "The settings of the run.")
    flags.DEFINE_string("train_data", None, "Shards.")
    flags.DEFINE_string("eval_data", None, "Held-out shards.")
    flags.DEFINE_string("run_dir", None, "Directory of the two logs.")
    command_line.required("config_json", "train_data", "eval_data", "run_dir")


def main() -> None:
    config, _ = training_programs.recorded_config("pretrain", PretrainConfig)
    os.makedirs(FLAGS.run_dir, exist_ok=True)
    with (
        open(os.path.join(FLAGS.run_dir, METRICS_FILE), "w") as metrics_log,
        open(os.path.join(FLAGS.run_dir, TIMING_FILE), "w") as timing_log,
    ):
        for metrics, timing in pretrain(
            config, FLAGS.train_data, FLAGS.eval_data
        ):
            print(json.dumps(metrics), file=metrics_log, flush=True)
            print(json.dumps(timing), file=timing_log, flush=True)


def check(config: PretrainConfig) -> None:
    """Raises UserError for settings that transformers has no equal of."""
    require_packages("The comparison", TransformersSide.packages)
    precision = config.training.precision
    require(
        shares_whole_groups(config.model) and precision != "float16",
        "The comparison is of layers that share all weights of a group, in "
        f"float32 or bfloat16; got sharing={config.model.sharing}, "
        f"precision={precision}.",
    )
    expected = _settings(override(PretrainConfig(), {"optimizer": "adamw"}))
    wrong = [
        f"{name}={value} (expected {expected[name]})"
        for name, value in _settings(config).items()
        if name not in _TAKEN_OVER | _WITHOUT_EFFECT and value != expected[name]
    ]
    require(
        not wrong,
        f"The comparison has no equal of {', '.join(wrong)}.",
    )


def _settings(config: PretrainConfig) -> dict[str, Any]:
    """Returns all settings by name."""
    sections = to_dict(config).values()
    return dict(itertools.chain(*(section.items() for section in sections)))


def batches(
    config: PretrainConfig, data: str, split: str
) -> PretrainingBatches:
    """Returns the batches that bin.pretrain reads with these settings.

    Raises:
        UserError: for shards of another sentence objective.
    """
    training = config.training
    shards = open_shards(data, split)
    objective = shards.metadata["sentence_objective"]
    require(
        objective == "sop" == (config.pretraining.sentence_objective or "sop"),
        f"{data} was built with sentence_objective={objective}; the "
        "comparison is of sentence_objective=sop.",
    )
    return PretrainingBatches(
        shards,
        masking_config=config.masking,
        batch_size=training.train_batch_size
        if split == "train"
        else training.eval_batch_size,
        seed=training.seed,
        training=split == "train",
    )


def pretrain(
    config: PretrainConfig, train_data: str, eval_data: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Trains, and yields the metrics and the timing of every evaluation.

    The arithmetic counted is that of our step, although theirs computes
    logits at all positions.

    Raises:
        UserError: for settings that transformers has no equal of.
    """
    check(config)
    import torch

    training = config.training
    torch.manual_seed(training.seed)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = albert_for_pretraining(config.model, "sdpa")
    optimizer, schedule = _optimizer(config, model)
    # Faster than without it; evaluations are not timed.
    forward = torch.compile(model)
    source = batches(config, train_data, "train")
    held_out = batches(config, eval_data, "eval")
    flops = flops_per_step(
        config,
        source.max_seq_length,
        config.model.num_hidden_layers,
        config.masking.masked_lm_prob,
    )
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
        if step == 1 or step % training.eval_steps:
            continue
        rate = (step - timed_from) / (time.perf_counter() - started)
        metrics = evaluate(model, held_out, training.max_eval_steps)
        yield (
            {"step": step, "split": "eval", **metrics},
            {
                "step": step,
                "sequences_per_second": rate * training.train_batch_size,
                "flops_per_second": rate * flops,
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
    num_steps = min(held_out.num_steps, max_steps or held_out.num_steps)
    for batch in prefetch(held_out.batch, range(num_steps)):
        inputs = _tensors(batch)
        tokens, order = inputs.pop("labels"), inputs.pop("sentence_order_label")
        predicted = tokens != IGNORED_LABEL
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
    losses = metrics["masked_lm_loss"] + metrics["sentence_order_loss"]
    return {"loss": losses, **metrics}


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
        for name, array in pretraining_inputs(batch).items()
    }


if __name__ == "__main__":
    command_line.run(define_flags, main)
