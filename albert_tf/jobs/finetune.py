"""The fine-tuning job: a task's head on a pretrained encoder."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.cluster.distribution import broadcast, is_chief
from albert_tf.config import (
    FinetuneConfig,
    ModelConfig,
    RuntimeConfig,
    UserError,
    given_settings,
    lookup,
    override,
    require,
    to_dict,
)
from albert_tf.inputs.length_buckets import TaskBatches, bucket_widths
from albert_tf.inputs.source_schedule import SourceSchedule
from albert_tf.interchange.model_directory import (
    check_vocab_size,
    load_model_directory,
    save_model_directory,
)
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.jobs.baseline_comparison import (
    compare_with_baseline,
    no_better_than_guessing,
)
from albert_tf.jobs.micro_batch import with_micro_batch_size
from albert_tf.jobs.task_evaluation import EvaluatedExamples
from albert_tf.modeling.models import AlbertModel, model_class
from albert_tf.modeling.weights.adapters import add_adapters
from albert_tf.modeling.weights.pretrained import StoredModel
from albert_tf.modeling.weights.stored_weights import has_pooler
from albert_tf.prediction.predictor import Predictor
from albert_tf.report.figures import draw
from albert_tf.report.finetuning_page import (
    PREDICTION_BATCH,
    FinetunedRun,
    finetuning_page,
)
from albert_tf.report.page import Page
from albert_tf.report.run_sections import write_report
from albert_tf.rundir.run_directory import extended
from albert_tf.rundir.run_results import compared_step, write_comparison
from albert_tf.tasks.base import Task
from albert_tf.tasks.baselines.table import baseline_of, baseline_scores
from albert_tf.tasks.examples import Log, listed
from albert_tf.tasks.feature_building import FeatureBuilder, examples_digest
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.base import ScoredExamples
from albert_tf.tasks.recipes import RECIPES, Recipe, with_recipe
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.training.job import Job, strategy_for
from albert_tf.training.loop import train
from albert_tf.training.training_loss import head_loss

# The directory of low-rank adapters, beside model/, which has them merged.
ADAPTERS = "adapters"


def run_finetuning(
    config: FinetuneConfig,
    task: Task,
    *,
    data_dir: str,
    run_dir: str,
    initial: StoredModel,
    tokenizer_dir: str = "",
    model_changes: Mapping[str, Any] | None = None,
    recipe: str = "auto",
    runtime: RuntimeConfig | None = None,
    workers: int = 1,
    cache_dir: str = "",
    report: Sequence[str] | None = None,
    log: Log = print,
) -> dict[str, float]:
    """Fine-tunes and returns the best evaluation on dev examples.

    Writes the files of `run_pretraining`, and resumes as it does, but model/
    is the model of the best evaluation, by `best_metric`.

    Args:
        config: all settings but the architecture, which is that of `initial`.
            Those that were not given to it (`given_settings`) are the
            recipe's.
        task: a row of the catalog, or a custom task.
        data_dir: the task's files.
        run_dir: created if missing.
        initial: the pretrained weights.
        tokenizer_dir: where `initial` has no tokenizer.
        model_changes: settings of the architecture to change (dropout).
        recipe: a row of RECIPES; auto: the paper's settings for the task, or
            what narrower models were found to need; none: the defaults.
        runtime: settings that do not decide the result.
        workers: processes that build features.
        cache_dir: caches features for the next run; empty: no cache.
        report: lines for report.html, such as the command; None: no report.
        log: takes a line.

    Raises:
        UserError: for settings, data and weights that do not fit together.
        RunStopped: when it ends before its last step (see loop.py).
    """
    runtime = runtime or RuntimeConfig()
    strategy = strategy_for(config, runtime)
    tokenizer_path = tokenizer_dir or initial.tokenizer_path
    tokenizer = load_tokenizer(tokenizer_path)
    config, model_config, recipe_line = _with_recipe(
        # What there is to say of the rows is logged when they are used.
        lookup(RECIPES, recipe, "recipe")(
            task,
            initial.config,
            lambda: task.read(data_dir, "train", lambda _: None),
        ),
        config,
        initial.config,
        model_changes or {},
        log,
    )
    check_vocab_size(model_config, tokenizer, tokenizer_path)
    _check_lengths(config, model_config)
    examples = _read_examples(config, task, data_dir, log)
    labels = list(task.labels) or task.kind.labels(examples["train"])
    builder = FeatureBuilder(
        task.kind, tokenizer, config.features, labels, workers, cache_dir, log
    )
    features = builder.build(examples["train"], training=True)
    if config.finetuning.class_weights:
        features, weights = task.kind.class_weighted(
            features, labels, config.finetuning.class_weights
        )
        of_classes = (f"{name} {value:.3g}" for name, value in weights.items())
        log(f"Class weights: {listed(of_classes, 12)}.")
    _warn_of_untrained_positions(features, initial, log)
    metrics = task.kind.metric_names(task.metrics, labels)
    config = extended(_resolve(config, len(features), metrics[0]), runtime)
    config = with_micro_batch_size(
        config,
        strategy,
        run_dir,
        model_config,
        batch_size=config.training.train_batch_size,
        seq_length=config.features.max_seq_length,
        choices=max(features.choices, 1),
    )
    batches = _training_batches(config, features, examples["train"])
    return train(
        _Finetuning(
            config=config,
            strategy=strategy,
            run_dir=run_dir,
            runtime=runtime,
            model_config=model_config,
            tokenizer=tokenizer,
            initial=initial,
            training_loss=head_loss(task.kind.head),
            sources=SourceSchedule([batches], [0]),
            best_metric=config.training.best_metric,
            metric_names=_metric_names(task, metrics),
            log=log,
            task=task,
            data_dir=data_dir,
            labels=labels,
            examples=examples,
            evaluated=_evaluated(config, task, builder, examples),
            train_features=features,
            cache_dir=cache_dir,
            report=report and [*report, *filter(None, [recipe_line])],
        )
    )


def _with_recipe(
    recipe: Recipe,
    config: FinetuneConfig,
    model: ModelConfig,
    model_changes: Mapping[str, Any],
    log: Log,
) -> tuple[FinetuneConfig, ModelConfig, str]:
    """Returns the settings with the recipe's, the architecture, and a line."""
    given = given_settings(config)
    config, model_changes, line = with_recipe(config, model_changes, recipe)
    if line:
        log(line)
    positions = model.max_position_embeddings
    is_longer = config.features.max_seq_length > positions
    if is_longer and "max_seq_length" not in given:
        log(f"max_seq_length={positions}: the model has no more positions.")
        config = override(config, {"max_seq_length": positions})
    return config, override(model, model_changes), line


def _check_lengths(config: FinetuneConfig, model_config: ModelConfig) -> None:
    max_seq_length = config.features.max_seq_length
    positions = model_config.max_position_embeddings
    require(
        max_seq_length <= positions,
        f"max_seq_length={max_seq_length} exceeds the model's "
        f"max_position_embeddings={positions}; lower --max_seq_length.",
    )
    steps_per_loop = config.training.steps_per_loop
    require(
        config.finetuning.padding != "bucket" or steps_per_loop == 1,
        f"steps_per_loop={steps_per_loop} needs batches of one width; give "
        "--padding=max too.",
    )


def _widths(config: FinetuneConfig) -> tuple[int, ...]:
    """Returns the sequence lengths of batches."""
    longest = config.features.max_seq_length
    if config.finetuning.padding == "bucket":
        return bucket_widths(longest)
    return (longest,)


def _metric_names(task: Task, metrics: Sequence[str]) -> list[str]:
    """Returns the names of what is evaluated, of every split."""
    return [
        f"{name}{suffix}"
        for suffix in task.evaluated
        for name in ("loss", *metrics)
    ]


def _training_batches(
    config: FinetuneConfig, features: Features, examples: Sequence[Any]
) -> TaskBatches:
    return TaskBatches(
        features,
        batch_size=config.training.train_batch_size,
        seed=config.training.seed,
        widths=_widths(config),
        training=True,
        name_of=lambda row: examples[features.example_numbers[row]].location,
    )


def _evaluated(
    config: FinetuneConfig,
    task: Task,
    builder: FeatureBuilder,
    examples: Mapping[str, Sequence[Any]],
) -> dict[str, EvaluatedExamples]:
    """Returns the held-out examples by the suffix of their metrics."""
    training = config.training
    max_examples = training.max_eval_steps * training.eval_batch_size or None
    return {
        suffix: EvaluatedExamples(
            builder,
            examples[split][:max_examples],
            batch_size=training.eval_batch_size,
            widths=_widths(config),
        )
        for suffix, split in task.evaluated.items()
    }


def _warn_of_untrained_positions(
    features: Features, initial: StoredModel, log: Log
) -> None:
    trained = initial.description.max_seq_length
    longer = int((features.lengths > trained).sum())
    if longer:
        log(
            f"{longer} of {len(features)} training sequences are longer than "
            f"{trained} tokens, the longest input that the weights of "
            f"{initial.source} were trained on, so the position embeddings "
            "beyond are untrained. Pretrain some steps on shards of longer "
            "sequences first (pretrain --init_from), or lower "
            "--max_seq_length."
        )


def _read_examples(
    config: FinetuneConfig, task: Task, data_dir: str, log: Log
) -> dict[str, Sequence[Any]]:
    """Returns the labelled examples of each split that the run needs."""
    examples = {
        split: task.read(data_dir, split, log)
        for split in ("train", *task.evaluated.values())
    }
    for split, of_split in examples.items():
        for example in of_split:
            if not task.kind.has_label(example):
                raise UserError(
                    f"{example.location} has no label; {split} examples of "
                    f"{task.name} need one."
                )
    if config.finetuning.double_unordered:
        require(
            not task.ordered,
            "double_unordered swaps the texts of pairs, and the labels of "
            f"{task.name} depend on their order.",
        )
        examples["train"] = task.kind.in_both_orders(examples["train"])
    return examples


def _resolve(
    config: FinetuneConfig, num_rows: int, best_metric: str
) -> FinetuneConfig:
    """Returns the configuration with steps in place of epochs.

    `best_metric` is that of a configuration which names none.
    """
    settings, training = config.finetuning, config.training
    steps = training.num_train_steps or math.ceil(
        settings.num_train_epochs * num_rows / training.train_batch_size
    )
    require(
        steps > 0,
        "num_train_steps and num_train_epochs are both 0; fine-tuning needs "
        "at least 1 step.",
    )
    warmup = config.optimizer.num_warmup_steps or round(
        settings.warmup_proportion * steps
    )
    return override(
        config,
        {
            "num_train_steps": steps,
            "num_warmup_steps": warmup,
            "best_metric": training.best_metric or best_metric,
        },
    )


@dataclasses.dataclass(kw_only=True)
class _Finetuning(Job):
    """Fine-tuning; `evaluated` is by the suffix of the metrics' names."""

    name = "finetune"
    task: Task
    data_dir: str
    labels: list[str]
    examples: dict[str, Sequence[Any]]
    evaluated: dict[str, EvaluatedExamples]
    train_features: Features
    cache_dir: str
    report: Sequence[str] | None
    _last_scored: dict[str, ScoredExamples] = dataclasses.field(
        default_factory=dict
    )
    _scored_step: int = -1

    def build_model(self, **options: Any) -> AlbertModel:
        build = model_class(self.task.kind.head)
        if self.task.kind.labelled:
            options["labels"] = self.labels
        model = build(self.model_config, **options)
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
        division = self.task.division(self.data_dir)
        return {
            "job": self.name,
            "task": self.task.name,
            **({"held_out": division} if division else {}),
            "config": to_dict(self.config),
            "model": to_dict(self.model_config),
            "labels": self.labels,
            "train_examples": examples_digest(self.examples["train"]),
            "dev_examples": [
                examples_digest(self.examples[split])
                for split in self.task.evaluated.values()
            ],
            "tokenizer": self.tokenizer.fingerprint,
            "init_from": self.initial.fingerprint,
        }

    def evaluate(self, step: int) -> dict[str, float]:
        kind = self.task.kind
        metrics: dict[str, float] = {}
        for suffix, loss in self._score(step).items():
            scored = self._last_scored[suffix]
            found = kind.compute_metrics(scored, self.task.metrics)
            if step >= self.config.optimizer.num_warmup_steps:
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
        """Scores the held-out examples; returns the mean losses."""
        losses = {}
        for suffix, part in self.evaluated.items():
            losses[suffix], self._last_scored[suffix] = part.score(self.trainer)
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
        if constant:
            problem = (
                f"All {split} examples get the same answer at step {step}: "
                f"{constant}."
            )
        elif comparison := no_better_than_guessing(metrics, self.best_metric):
            problem = (
                f"At step {step} of {self.config.training.num_train_steps} "
                f"the {split} {comparison}: the model is not learning."
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
                pairs=self.task.kind.are_pairs(self.examples["train"]),
                base_model=self.initial.hub_name,
                columns=self.task.columns(self.data_dir),
            ),
        )
        if self.config.finetuning.lora_rank:
            self.trainer.model.save_pretrained(
                os.path.join(os.path.dirname(directory), ADAPTERS),
                adapters=True,
            )

    def figures(self) -> dict[str, bytes]:
        return {
            f"answers{suffix}": draw(
                self.task.kind.figure(scored),
                f"{self.task.name}, {self.task.evaluated[suffix]}",
            )
            for suffix, scored in self._last_scored.items()
        }

    def conclude(self, step: int) -> None:
        chief = is_chief(self.strategy)
        if not self._last_scored:
            # The run had ended before, perhaps without a comparison.
            done = chief and compared_step(self.run_dir) == step
            if broadcast(self.strategy, float(done)):
                return
        if self._scored_step != step:
            self._score(step)
        if chief:
            self._compare(step)
            if self.report is not None:
                write_report(self.run_dir, self._page, self.log)

    def _page(self) -> Page:
        """Returns the report of the scored model."""
        loaded = load_model_directory(self.run_dir)
        splits = self.task.evaluated
        held_out = {splits[s]: part for s, part in self.evaluated.items()}
        features = {name: part.features for name, part in held_out.items()}
        return finetuning_page(
            FinetunedRun(
                run_dir=self.run_dir,
                task=self.task,
                examples={
                    "train": self.examples["train"],
                    **{name: part.examples for name, part in held_out.items()},
                },
                features={"train": self.train_features, **features},
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
            # Nothing that fails here may cost the finished model.
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
                self.examples["train"],
                scored.examples,
                cache_dir=self.cache_dir,
                log=self.log,
            )
            for suffix, scored in self._last_scored.items()
        }
