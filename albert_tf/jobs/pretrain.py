"""The pretraining job: masked LM and the sentence objective of the shards."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.cluster.distribution import is_chief
from albert_tf.config import (
    PretrainConfig,
    RuntimeConfig,
    lookup,
    require,
    sharing_plan,
    to_dict,
)
from albert_tf.config.schedules import late_change_warning
from albert_tf.inputs.input_pipeline import (
    check_shards,
    sentence_objective,
)
from albert_tf.inputs.source_schedule import SourceSchedule
from albert_tf.interchange.model_directory import (
    LoadedModel,
    save_model_directory,
)
from albert_tf.jobs.evaluate import (
    evaluate_pretraining,
    held_out_samples,
    pretraining_metric_names,
)
from albert_tf.jobs.micro_batch import with_micro_batch_size
from albert_tf.jobs.pretraining_phases import (
    Phase,
    PretrainingShards,
    held_out_sources,
    masking_schedule,
    open_phases,
    training_sources,
    unequal_lengths,
    with_fixed_masks,
)
from albert_tf.jobs.pretraining_verdict import (
    no_learning_warning,
    pretraining_verdict,
)
from albert_tf.jobs.run_card import write_card
from albert_tf.modeling.models import AlbertForPretraining, AlbertModel
from albert_tf.modeling.weights.pretrained import StoredModel
from albert_tf.records.sentence_objectives import (
    SENTENCE_OBJECTIVES,
    SentenceObjective,
)
from albert_tf.records.shards import TOKENIZER_DIRECTORY
from albert_tf.report.page import Page
from albert_tf.report.pretraining_page import (
    PretrainedRun,
    pretraining_page,
    shards_row,
)
from albert_tf.report.run_sections import write_report
from albert_tf.report.sample_predictions import (
    MaskedSample,
    masked_sentences,
)
from albert_tf.rundir.run_directory import extended
from albert_tf.rundir.run_results import result
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.tokenizer_base import Tokenizer
from albert_tf.training.depth_schedule import DepthSchedule
from albert_tf.training.evaluator import on_one_cpu
from albert_tf.training.job import Job, strategy_for
from albert_tf.training.loop import train
from albert_tf.training.training_loss import pretraining_loss


def run_pretraining(
    config: PretrainConfig,
    shards: PretrainingShards,
    *,
    run_dir: str,
    runtime: RuntimeConfig | None = None,
    initial: StoredModel | None = None,
    report: Sequence[str] | None = None,
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
        shards: where they are.
        run_dir: created if missing.
        runtime: settings that do not decide the result.
        initial: weights to start from instead of random ones.
        report: lines for report.html, such as the command; None: no report
            and no model card.

    Raises:
        UserError: for settings, shards and weights that do not fit together.
        RunStopped: when it ends early or after a signal (see loop.py).
    """
    runtime = runtime or RuntimeConfig()
    strategy = strategy_for(config, runtime)
    phases = open_phases(config, shards)
    config = extended(with_fixed_masks(config, phases), runtime)
    tokenizer = _tokenizer(config, phases, initial)
    sources = _sources(config, strategy, phases, tokenizer)
    config = with_micro_batch_size(
        config, strategy, run_dir, config.model, **_largest_batch(sources)
    )
    objective = _objective(config, phases)
    loss = pretraining_loss(objective, config.pretraining.sentence_loss_weight)
    return train(
        _Pretraining(
            config=config,
            strategy=strategy,
            run_dir=run_dir,
            runtime=runtime,
            model_config=config.model,
            tokenizer=tokenizer,
            initial=initial,
            training_loss=loss,
            sources=sources,
            phases=phases,
            held_out=held_out_sources(config, phases),
            depths=_depths(config),
            best_metric=config.training.best_metric or "loss",
            metric_names=pretraining_metric_names(loss.terms),
            warnings=_warnings(config, phases, objective),
            report=report,
        )
    )


def _sources(
    config: PretrainConfig,
    strategy: tf.distribute.Strategy,
    phases: Sequence[Phase],
    tokenizer: Tokenizer,
) -> SourceSchedule:
    """Returns the training batches; on one CPU a batch's rows by length."""
    return training_sources(
        config,
        phases,
        tokenizer,
        masking_schedule(config, phases),
        on_one_cpu(strategy) and config.training.steps_per_loop == 1,
    )


def _depths(config: PretrainConfig) -> DepthSchedule:
    """Returns the number of blocks by step, of the settings."""
    schedule = config.pretraining.depth_schedule
    return DepthSchedule(schedule, len(sharing_plan(config.model)))


def _warnings(
    config: PretrainConfig,
    phases: Sequence[Phase],
    objective: SentenceObjective,
) -> tuple[str, ...]:
    """Returns lines for the log, the objective's first."""
    return (
        f"Sentence objective {objective.name}: {objective.meaning}.",
        *unequal_lengths(phases),
        *_late_changes(config),
    )


def _late_changes(config: PretrainConfig) -> list[str]:
    """Returns a warning for each schedule that ends after the training."""
    steps = config.training.num_train_steps
    names = ("depth_schedule", "masking_schedule", "ngram_schedule")
    texts = {name: getattr(config.pretraining, name) for name in names}
    found = (late_change_warning(n, text, steps) for n, text in texts.items())
    return list(filter(None, found))


def _tokenizer(
    config: PretrainConfig,
    phases: Sequence[Phase],
    initial: StoredModel | None,
) -> Tokenizer:
    """Returns the shards' tokenizer, and checks that of the model by it."""
    directory = phases[0].train.directory
    tokenizer = load_tokenizer(os.path.join(directory, TOKENIZER_DIRECTORY))
    of_model = tokenizer
    if initial and initial.directory:
        of_model = load_tokenizer(initial.directory)
    for phase in phases:
        for shards in (phase.train, phase.held_out):
            check_shards(config.model, shards, of_model)
    return tokenizer


def _objective(
    config: PretrainConfig, phases: Sequence[Phase]
) -> SentenceObjective:
    """Returns the shards' objective, which must be that of the settings."""
    found = sentence_objective(
        *(phase.train for phase in phases),
        *(phase.held_out for phase in phases),
    )
    expected = config.pretraining.sentence_objective
    if expected:
        lookup(SENTENCE_OBJECTIVES, expected, "sentence_objective")
    require(
        expected in ("", found.name),
        f"{phases[0].train.directory} was built with sentence_objective="
        f"{found.name}, and this run is to learn sentence_objective="
        f"{expected}: build its shards by python -m "
        f"bin.build_pretraining_data --sentence_objective={expected}, or give "
        f"this run --sentence_objective={found.name}.",
    )
    return found


def _largest_batch(sources: SourceSchedule) -> dict[str, int]:
    """Returns the shape of the largest batch, each dimension by its name."""
    batches: list[Any] = [*sources]
    return {
        "batch_size": max(b.batch_size for b in batches),
        "seq_length": max(b.max_seq_length for b in batches),
        "num_predictions": max(b.num_predictions for b in batches),
    }


@dataclasses.dataclass(kw_only=True)
class _Pretraining(Job):
    """Pretraining on shards; `held_out` has the batches of evaluations."""

    name = "pretrain"
    config: PretrainConfig
    phases: Sequence[Phase]
    held_out: SourceSchedule
    report: Sequence[str] | None

    def build_model(self, **options: Any) -> AlbertModel:
        """Returns a model with the heads of pretraining."""
        return AlbertForPretraining(self.model_config, **options)

    def description(self) -> dict:
        """Returns the settings and digests that determine the run's result."""
        return {
            "job": self.name,
            "config": to_dict(self.config),
            "train_data": [phase.train.fingerprint for phase in self.phases],
            "eval_data": [phase.held_out.fingerprint for phase in self.phases],
            "tokenizer": self.tokenizer.fingerprint,
            "init_from": self.initial.fingerprint if self.initial else "",
        }

    def evaluate(self, step: int) -> dict[str, float]:
        """Returns the metrics on the held-out shards of the step's phase."""
        # A phase is over with its last step.
        metrics = evaluate_pretraining(
            self.trainer,
            self.held_out.at(step - 1),
            self.config.training.max_eval_steps,
            self.depths.at(step - 1),
        )
        warning = no_learning_warning(
            metrics,
            self.config,
            step,
            initialized=self.initial is not None,
        )
        if warning:
            self.log(warning)
        return metrics

    def held_out_digest(self, step: int) -> str:
        """Returns the fingerprint of the held-out shards of the phase."""
        phase = self.phases[self.held_out.number(step - 1)]
        return phase.held_out.fingerprint

    def export(self, directory: str, evaluation: Mapping[str, float]) -> None:
        """Writes the model and its tokenizer."""
        save_model_directory(
            directory,
            self.trainer.model,
            self.tokenizer,
            max_seq_length=self._max_seq_length,
        )

    @property
    def _max_seq_length(self) -> int:
        return max(
            phase.train.metadata["max_seq_length"] for phase in self.phases
        )

    def samples(self, step: int) -> str:
        """Returns predictions for some held-out segments, in Markdown."""
        return masked_sentences(self._samples(step))

    def _samples(self, step: int) -> list[MaskedSample]:
        depth = self.depths.at(step - 1)
        return held_out_samples(
            self.tokenizer,
            self.held_out.at(step - 1),
            lambda batch: self.trainer.outputs(batch, depth),
            self.runtime.data_timeout_secs,
        )

    def conclude(self, step: int) -> None:
        """Writes the report and the model card, if they are asked for."""
        if self.report is None:
            return
        # All workers predict together.
        samples = self._samples(step)
        if is_chief(self.strategy):
            loaded = LoadedModel(
                self.trainer.model, self.tokenizer, self._max_seq_length
            )
            write_card(self.run_dir, lambda: loaded, self.log)
            write_report(self.run_dir, lambda: self._page(samples), self.log)

    def _page(self, samples: Sequence[MaskedSample]) -> Page:
        """Returns the report of the run."""
        shards = [
            shards_row(shard_set, split)
            for phase in self.phases
            for shard_set, split in (
                (phase.train, "train"),
                (phase.held_out, "eval"),
            )
        ]
        return pretraining_page(
            PretrainedRun(
                self.run_dir,
                pretraining_verdict(
                    result(self.run_dir),
                    self.config,
                    initialized=self.initial is not None,
                ),
                self.model_config,
                samples,
                list(dict.fromkeys(shards)),
                self.report or (),
            )
        )
