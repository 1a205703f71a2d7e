"""What fine-tuning evaluates, saves, compares and reports on its way."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.cluster.distribution import broadcast, is_chief
from albert_tf.config import (
    to_dict,
)
from albert_tf.interchange.model_directory import (
    LoadedModel,
    load_model_directory,
    save_model_directory,
)
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.io import files
from albert_tf.jobs.baseline_comparison import (
    compare_with_baseline,
    no_better_than_guessing,
)
from albert_tf.jobs.finetuning_data import FinetuningData
from albert_tf.jobs.run_card import write_card
from albert_tf.jobs.task_evaluation import NonFiniteOutputs
from albert_tf.modeling.models import AlbertModel, model_class
from albert_tf.modeling.weights.adapters import add_adapters
from albert_tf.modeling.weights.stored_weights import has_pooler
from albert_tf.prediction.predictor import Predictor
from albert_tf.report.figures import draw
from albert_tf.report.finetuning_page import (
    PREDICTION_BATCH,
    FinetunedRun,
    finetuning_page,
)
from albert_tf.report.page import Page
from albert_tf.report.run_sections import REPORT_FILE, write_report
from albert_tf.rundir.run_directory import NUM_EXAMPLES
from albert_tf.rundir.run_results import compared_step, write_comparison
from albert_tf.tasks.base import Task
from albert_tf.tasks.baselines.table import baseline_of, baseline_scores
from albert_tf.tasks.feature_building import examples_digest
from albert_tf.tasks.kinds.base import LabelScaling, ScoredExamples
from albert_tf.tasks.splits import TRAIN
from albert_tf.training.job import Job
from albert_tf.training.skipped_steps import diverged

# The directory of low-rank adapters, beside model/, which has them merged.
ADAPTERS = "adapters"


@dataclasses.dataclass(kw_only=True)
class FinetuningJob(Job):
    """Fine-tuning on a task's data."""

    name = "finetune"
    data: FinetuningData
    report: Sequence[str] | None
    _last_scored: dict[str, ScoredExamples] = dataclasses.field(
        default_factory=dict
    )
    _scored_step: int = -1

    @property
    def task(self) -> Task:
        """The task that is learned."""
        return self.data.task

    def build_model(self, **options: Any) -> AlbertModel:
        """Returns a model with the task's head, and adapters if set."""
        build = model_class(self.task.kind.head)
        if self.task.kind.labelled:
            options["labels"] = self.data.labels
        model = build(self.model_config, **options)
        if self.data.label_scaling != LabelScaling():
            (head,) = model.heads.values()
            head.mean, head.deviation = self.data.label_scaling
        settings = self.config.finetuning
        if settings.lora_rank:
            line = add_adapters(
                model,
                settings.lora_rank,
                settings.lora_alpha,
                trains_pooler=not has_pooler(self.initial.weights),
            )
            self.log(line)
        return model

    def description(self) -> dict:
        """Returns everything that decides the run, as in config.json."""
        division = self.task.division(self.data.directory)
        numbers = {name: len(e) for name, e in self.data.examples.items()}
        return {
            "job": self.name,
            "task": self.task.name,
            **({"held_out": division} if division else {}),
            "config": to_dict(self.config),
            "model": to_dict(self.model_config),
            "labels": self.data.labels,
            NUM_EXAMPLES: numbers,
            "train_examples": examples_digest(self.data.examples[TRAIN]),
            "dev_examples": [
                examples_digest(self.data.examples[split])
                for split in self.task.evaluated.values()
            ],
            "tokenizer": self.tokenizer.fingerprint,
            "init_from": self.initial.fingerprint,
        }

    def evaluate(self, step: int) -> dict[str, float]:
        """Returns the metrics on the dev examples."""
        kind = self.task.kind
        metrics: dict[str, float] = {}
        for suffix, loss in self._score(step).items():
            scored = self._last_scored[suffix]
            found = kind.compute_metrics(scored, self.task.metrics)
            # In the first epochs of few most models have learned little.
            if 2 * step >= self.config.training.num_train_steps:
                constant = kind.constant_prediction(scored)
                self._warn_if_not_learning(step, suffix, constant, found)
            for name, value in ({"loss": loss} | found).items():
                metrics[f"{name}{suffix}"] = value
        if self.config.finetuning.calibrate:
            first, *_ = self._last_scored.values()
            temperature = kind.fitted_temperature(first)
            if temperature is not None:
                metrics["temperature"] = temperature
        return metrics

    def _score(self, step: int) -> dict[str, float]:
        """Scores the held-out examples; returns the mean losses.

        Raises:
            RunStopped: when outputs are not finite.
        """
        losses = {}
        for suffix, part in self.data.evaluated.items():
            try:
                loss, scored = part.score(self.trainer)
            except NonFiniteOutputs:
                raise diverged(
                    "The model's outputs are not finite in the evaluation at "
                    f"step {step}: the run has diverged"
                ) from None
            losses[suffix], self._last_scored[suffix] = loss, scored
        self._scored_step = step
        return losses

    def _warn_if_not_learning(
        self,
        step: int,
        suffix: str,
        constant: str | None,
        metrics: Mapping[str, float],
    ) -> None:
        """Logs that all predictions are alike, or no better than one guess."""
        split = self.task.evaluated[suffix]
        problem = ""
        if constant and metrics.get("accuracy") != 1.0:
            problem = (
                f"All {split} examples get the same answer at step {step}: "
                f"{constant}."
            )
        elif comparison := no_better_than_guessing(metrics, self.best_metric):
            problem = (
                f"At step {step} of {self.config.training.num_train_steps} "
                f"the {split} {comparison}."
            )
        if problem:
            # The large second models have been reported to collapse with the
            # paper's rates (google-research/albert lowers RACE's).
            rate = self.config.optimizer.learning_rate
            self.log(
                f"{problem} If this persists, start again in another "
                "--run_dir: if the learning rate is high, with "
                f"--learning_rate={rate / 2:g}; if it is low, with more steps "
                "or a higher rate."
            )

    def export(self, directory: str, evaluation: Mapping[str, float]) -> None:
        """Writes a model directory with the task, its adapters beside it."""
        features = self.config.features
        to_save = self.task.kind.config_to_save(features, evaluation)
        save_model_directory(
            directory,
            self.trainer.model,
            self.tokenizer,
            max_seq_length=features.max_seq_length,
            task=TaskRecord(
                self.task.name,
                to_save,
                pairs=self.task.kind.are_pairs(self.data.examples[TRAIN]),
                base_model=self.initial.hub_name,
                columns=self.task.columns(self.data.directory),
                label_separator=self.task.label_separator,
            ),
        )
        if self.config.finetuning.lora_rank:
            self.trainer.model.save_pretrained(
                os.path.join(os.path.dirname(directory), ADAPTERS),
                adapters=True,
            )

    def figures(self) -> dict[str, bytes]:
        """Returns pictures of the last answers, as PNGs by name."""
        return {
            f"answers{suffix}": draw(
                self.task.kind.figure(scored),
                f"{self.task.name}, {self.task.evaluated[suffix]}",
            )
            for suffix, scored in self._last_scored.items()
        }

    def conclude(self, step: int) -> None:
        """Compares the model with a simple one; writes report and card."""
        chief = is_chief(self.strategy)
        report = os.path.join(self.run_dir, REPORT_FILE)
        if not self._last_scored:
            # The run had ended before, perhaps without comparison or report.
            done = (
                chief
                and compared_step(self.run_dir) == step
                and (self.report is None or files.isfile(report))
            )
            if broadcast(self.strategy, float(done)):
                return
        if self._scored_step != step:
            self._score(step)
        if chief:
            if self.report is not None:
                # That of a shorter run must not pass for this one's.
                with contextlib.suppress(OSError):
                    files.remove(report)
            self._compare(step)
            if self.report is not None:
                load = functools.cache(
                    lambda: load_model_directory(self.run_dir)
                )
                write_card(self.run_dir, load, self.log)
                write_report(self.run_dir, lambda: self._page(load()), self.log)

    def _page(self, loaded: LoadedModel) -> Page:
        """Returns the report of the scored model."""
        splits = self.task.evaluated
        held_out = {splits[s]: part for s, part in self.data.evaluated.items()}
        features = {name: part.features for name, part in held_out.items()}
        return finetuning_page(
            FinetunedRun(
                run_dir=self.run_dir,
                task=self.task,
                examples={
                    TRAIN: self.data.examples[TRAIN],
                    **{name: part.examples for name, part in held_out.items()},
                },
                features={TRAIN: self.data.features, **features},
                scored=self._last_scored,
                predictor=Predictor(loaded, PREDICTION_BATCH),
                notes=self.report or (),
            )
        )

    def _compare(self, step: int) -> None:
        """Writes the comparison of the scored model with a simple one."""
        try:
            comparison = compare_with_baseline(
                self.task,
                self._last_scored,
                self._simple_scores(),
                metric=self.best_metric,
                model=self.model_config,
            )
            write_comparison(self.run_dir, step, comparison)
        except Exception as error:
            # A failure here must not cost the finished model.
            self.log(
                "The comparison with a simple model failed "
                f"({type(error).__name__}: {error}); the model is complete."
            )

    def _simple_scores(self) -> dict[str, ScoredExamples]:
        """Returns the scores of the task's simple model, if there is one."""
        if not baseline_of(self.task.kind):
            return {}
        return {
            suffix: baseline_scores(
                self.task,
                self.data.examples[TRAIN],
                scored.examples,
                cache_dir=self.data.builder.cache_dir,
                log=self.log,
            )
            for suffix, scored in self._last_scored.items()
        }
