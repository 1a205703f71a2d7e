"""The pretraining job: masked LM and the sentence objective of the shards."""

import dataclasses
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert_tf.config import (
    MaskingConfig,
    PretrainConfig,
    RuntimeConfig,
    lookup,
    override,
    require,
    sharing_plan,
    to_dict,
)
from albert_tf.inputs.input_pipeline import (
    Batch,
    PretrainingBatches,
    check_shards,
    sentence_objective,
)
from albert_tf.inputs.phases import (
    DepthSchedule,
    Phases,
    numbers_of,
    parse_schedule,
)
from albert_tf.interchange.model_directory import (
    save_model_directory,
)
from albert_tf.jobs.evaluate import (
    evaluate_pretraining,
    pretraining_metric_names,
)
from albert_tf.jobs.micro_batch import resolve_for_machine
from albert_tf.jobs.sample_predictions import masked_sentences
from albert_tf.modeling.accounting import training_flops
from albert_tf.modeling.models import AlbertForPretraining, AlbertModel
from albert_tf.modeling.weights.pretrained import StoredModel
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.records.shards import TOKENIZER_DIRECTORY, ShardSet, open_shards
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.training.job import Job, start
from albert_tf.training.loop import train
from albert_tf.training.objectives import pretraining_objective

# Sequences whose lengths decide the capacities of packed ones.
_NUM_SAMPLED_LENGTHS = 4096
# Held-out segments whose predictions are logged at each evaluation.
_NUM_SAMPLES = 4
# After this share of a run, a model that predicts words no better than this
# above the most frequent token is not learning.
_SHARE_TO_LEAVE_BASELINE = 0.1
_MARGIN_ABOVE_BASELINE = 0.02


def run_pretraining(
    config: PretrainConfig,
    *,
    train_data: Sequence[str],
    eval_data: Sequence[str],
    run_dir: str,
    runtime: RuntimeConfig | None = None,
    initial: StoredModel | None = None,
) -> dict[str, float]:
    """Pretrains to the last step and returns the last evaluation.

    The sentence head learns the `sentence_objective` of the shards; a
    configuration that names another one is refused. The model has that head
    even where nothing trains it (none), so that a run on other shards can
    start from it.

    Writes config.json, checkpoints/, tensorboard/, metrics.jsonl, best_model/
    and, at the end, model/. Started again, it resumes from the newest
    checkpoint.

    Args:
        config: all settings that decide the result.
        train_data: a directory of shards, or a glob, per phase; split "train".
        eval_data: the same, or one for all phases; split "eval".
        run_dir: created if missing.
        runtime: settings that do not decide the result.
        initial: weights to start from instead of random ones.

    Raises:
        UserError: for settings, shards and weights that do not fit together.
        RunStopped: when it ends before its last step (see loop.py).
    """
    settings = config.training
    require(
        settings.num_train_steps > 0,
        "num_train_steps=0; pretraining needs at least 1.",
    )
    environment = start(config, run_dir, runtime)
    depths = DepthSchedule(
        config.pretraining.depth_schedule, len(sharing_plan(config.model))
    )
    steps, batch_sizes = _phases(config, train_data, eval_data)
    train_shards = [open_shards(path, "train") for path in train_data]
    eval_shards = [open_shards(path, "eval") for path in eval_data]
    directory = train_shards[0].directory
    tokenizer = load_tokenizer(os.path.join(directory, TOKENIZER_DIRECTORY))
    of_model = tokenizer
    if initial and initial.directory:
        of_model = load_tokenizer(initial.directory)
    for shards in (*train_shards, *eval_shards):
        check_shards(config.model, shards, of_model)
    objective = sentence_objective(*train_shards, *eval_shards)
    _check_objective(config, objective.name, directory)
    if len(eval_shards) == 1:
        eval_shards *= len(train_shards)

    # A phase for each directory of shards and each way of masking.
    schedule, last_changes = _masking_schedule(config, train_shards)
    ends = list(itertools.accumulate(steps))
    # An extension lengthens the last phase.
    ends[-1] = environment.runtime.extend_to_steps or ends[-1]
    stages = [
        (phase, begin, first)
        for phase, (begin, end) in enumerate(itertools.pairwise([0, *ends]))
        for first in [begin, *(step for step in schedule if begin < step < end)]
    ]
    sources = [
        PretrainingBatches(
            train_shards[phase],
            masking_config=schedule[max(n for n in schedule if n <= first)],
            batch_size=batch_sizes[phase],
            seed=settings.seed,
            training=True,
        )
        for phase, _, first in stages
    ]
    held_out = [
        PretrainingBatches(
            eval_shards[phase],
            masking_config=config.masking,
            batch_size=settings.eval_batch_size,
            seed=settings.seed,
            training=False,
        )
        for phase, _, _ in stages
    ]
    config = resolve_for_machine(
        config,
        environment,
        config.model,
        batch_size=max(batch_sizes),
        seq_length=max(source.max_seq_length for source in sources),
        num_predictions=max(source.num_predictions for source in sources),
    )
    packed_lengths = None
    if config.pretraining.pack_sequences:
        packed_lengths = {
            source.max_seq_length: source.first_lengths(_NUM_SAMPLED_LENGTHS)
            for source in sources
        }
    losses = pretraining_objective(
        objective, config.pretraining.sentence_loss_weight
    )
    return train(
        _Pretraining(
            config=config,
            environment=environment,
            model_config=config.model,
            tokenizer=tokenizer,
            initial=initial,
            objective=losses,
            packed_lengths=packed_lengths,
            phases=Phases(
                sources,
                starts=[first for _, _, first in stages],
                origins=[begin for _, begin, _ in stages],
            ),
            depths=depths,
            best_metric=settings.best_metric or "loss",
            metric_names=pretraining_metric_names(losses.targets),
            warnings=(
                f"Sentence objective {objective.name}: {objective.meaning}.",
                *_unequal_lengths(train_shards, eval_shards),
            ),
            last_changes=last_changes,
            train_shards=train_shards,
            eval_shards=eval_shards,
            held_out=held_out,
        )
    )


def _phases(
    config: PretrainConfig, train_data: Sequence[str], eval_data: Sequence[str]
) -> tuple[list[int], list[int]]:
    """Returns the steps and the batch size of every phase."""
    count = len(train_data)
    require(
        len(eval_data) in (1, count),
        f"--eval_data names {len(eval_data)} directories and --train_data "
        f"{count}; give one for all phases, or one for each.",
    )
    settings, training = config.pretraining, config.training
    steps = [training.num_train_steps]
    if count > 1 or settings.phases:
        steps = numbers_of("phases", settings.phases, count)
    require(
        sum(steps) == training.num_train_steps,
        f"phases={settings.phases} makes {sum(steps)} steps, and "
        f"num_train_steps is {training.num_train_steps}; they must agree.",
    )
    sizes = settings.phase_batch_sizes
    if not sizes:
        return steps, [training.train_batch_size] * count
    return steps, numbers_of("phase_batch_sizes", sizes, count)


def _masking_schedule(
    config: PretrainConfig, train: Sequence[ShardSet]
) -> tuple[dict[int, MaskingConfig], dict[str, int]]:
    """Returns the masking of training text by the step it applies from.

    And the step of the last change, by the name of the schedule.
    """
    schedules: tuple[tuple[str, str, type, str], ...] = (
        ("masking_schedule", "masked_lm_prob", float, "2000:0.2"),
        ("ngram_schedule", "max_ngram", int, "2000:3"),
    )
    changes: dict[int, dict[str, Any]] = {0: {}}
    last_changes: dict[str, int] = {}
    for name, setting, convert, example in schedules:
        text = getattr(config.pretraining, name)
        if not text:
            continue
        for step, value in parse_schedule(name, text, convert, example).items():
            changes.setdefault(step, {})[setting] = value
            last_changes[name] = step
        for shards in train:
            require(
                shards.metadata["record_kind"] == "dynamic",
                f"{name}={text!r}, and the masks of {shards.directory} are "
                "fixed: expected shards built with --record_kind=dynamic, or "
                f"--{name}= for no schedule.",
            )
    masking, schedule = config.masking, {}
    for step in sorted(changes):
        schedule[step] = masking = override(masking, changes[step])
    return schedule, last_changes


def _check_objective(
    config: PretrainConfig, found: str, directory: str
) -> None:
    """Raises UserError unless shards have the objective of the settings."""
    expected = config.pretraining.sentence_objective
    if expected:
        lookup(SENTENCE_OBJECTIVES, expected, "sentence_objective")
    require(
        expected in ("", found),
        f"{directory} was built with sentence_objective={found}, and this run "
        f"is to learn sentence_objective={expected}: build its shards by "
        f"python -m bin.build_pretraining_data --sentence_objective={expected}"
        f", or give this run --sentence_objective={found}.",
    )


def _unequal_lengths(
    train: Sequence[ShardSet], evaluation: Sequence[ShardSet]
) -> Iterator[str]:
    for ours, theirs in zip(train, evaluation, strict=True):
        lengths = [s.metadata["max_seq_length"] for s in (ours, theirs)]
        if lengths[0] != lengths[1]:
            yield (
                f"{ours.directory} has sequences of {lengths[0]} tokens, and "
                f"the held-out ones of {theirs.directory} have {lengths[1]}."
            )


@dataclasses.dataclass(kw_only=True)
class _Pretraining(Job):
    """Pretraining on shards; shards and batches are one for each phase."""

    train_shards: list[ShardSet]
    eval_shards: list[ShardSet]
    held_out: list[PretrainingBatches]

    def build_model(self, **options: Any) -> AlbertModel:
        return AlbertForPretraining(self.model_config, **options)

    def description(self) -> dict:
        return {
            "job": "pretrain",
            "config": to_dict(self.config),
            "train_data": [part.fingerprint for part in self.train_shards],
            "eval_data": [part.fingerprint for part in self.eval_shards],
            "tokenizer": self.tokenizer.fingerprint,
            "init_from": self.initial.fingerprint if self.initial else "",
        }

    def evaluate(self, step: int) -> dict[str, float]:
        # A phase is over with its last step.
        metrics = evaluate_pretraining(
            self.trainer,
            self.held_out[self.phases.number(step - 1)],
            self.config.training.max_eval_steps,
            self.depths.at(step - 1),
        )
        self._warn_if_not_learning(step, metrics)
        return metrics

    def _warn_if_not_learning(
        self, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Logs why a run may predict only the most frequent token."""
        num_train_steps = self.config.training.num_train_steps
        accuracy = metrics["masked_lm_accuracy"]
        baseline = metrics["most_frequent_token_accuracy"]
        if (
            step < _SHARE_TO_LEAVE_BASELINE * num_train_steps
            or accuracy > baseline + _MARGIN_ABOVE_BASELINE
        ):
            return
        depth = self.depths.at(step - 1) or len(sharing_plan(self.model_config))
        optimizer = self.config.optimizer
        reasons = [
            f"the learning rate (try --learning_rate="
            f"{optimizer.learning_rate / 3:.2g}, or --optimizer=muon "
            "--beta_2=0.98 --learning_rate=0.002)"
        ]
        if not self.initial:
            reasons.append(
                "the initial weights (--position_init=sinusoidal "
                f"--output_init_scale={1 / math.sqrt(2 * depth):.2g})"
            )
        if depth > 2:
            half = num_train_steps // 2
            reasons.append(f"the depth (--depth_schedule=0:2,{half}:{depth})")
        self.log(
            f"The held-out masked-LM accuracy is {accuracy:.1%} at step {step} "
            f"of {num_train_steps}, and always predicting the most frequent "
            f"token has {baseline:.1%}: the model is not learning. Likely "
            f"reasons: {'; '.join(reasons)}. Start again in another --run_dir."
        )

    def flops(self, step: int, batch: Batch) -> int:
        source: Any = self.phases.source(step)
        return training_flops(
            self.model_config,
            batch_size=source.batch_size,
            seq_length=source.max_seq_length,
            num_predictions=source.num_predictions,
            read_positions_only=True,
            num_applications=self.depths.at(step),
        )

    def export(self, directory: str, evaluation: Mapping[str, float]) -> None:
        sources: Sequence[Any] = self.phases.sources
        save_model_directory(
            directory,
            self.trainer.model,
            self.tokenizer,
            max_seq_length=max(source.max_seq_length for source in sources),
        )

    def samples(self) -> str:
        batch = self.held_out[-1].batch(0, range(_NUM_SAMPLES))
        logits = self.trainer.outputs(batch)["masked_lm_logits"]
        return masked_sentences(self.tokenizer, batch, logits)
