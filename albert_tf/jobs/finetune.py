"""The fine-tuning job: a task's head on a pretrained encoder."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import (
    FinetuneConfig,
    Log,
    ModelConfig,
    RuntimeConfig,
    given_settings,
    lengths_within,
    lookup,
    override,
    require,
)
from albert_tf.inputs.source_schedule import SourceSchedule
from albert_tf.interchange.model_directory import (
    load_fitting_tokenizer,
)
from albert_tf.jobs.epochs import with_steps
from albert_tf.jobs.finetuning_data import (
    finetuning_data,
    in_both_orders,
    read_examples,
)
from albert_tf.jobs.finetuning_job import FinetuningJob
from albert_tf.jobs.micro_batch import with_micro_batch_size
from albert_tf.modeling.weights.pretrained import StoredModel
from albert_tf.rundir.recorded_division import (
    RecordedDivision,
    learned_before,
)
from albert_tf.rundir.run_directory import extended
from albert_tf.tasks.base import Task
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.tasks.features import Features
from albert_tf.tasks.recipes import RECIPES, Recipe, with_recipe
from albert_tf.tasks.splits import TRAIN
from albert_tf.training.job import strategy_for
from albert_tf.training.loop import train
from albert_tf.training.training_loss import head_loss


def run_finetuning(
    config: FinetuneConfig,
    task: Task,
    *,
    data_dir: str,
    run_dir: str,
    initial: StoredModel,
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
        initial: the pretrained weights, and the tokenizer beside them.
        model_changes: settings of the architecture to change (dropout).
        recipe: a row of RECIPES; auto: the paper's settings for the task, or
            what narrower models were found to need; none: the defaults.
        runtime: settings that do not decide the result.
        workers: processes that build features.
        cache_dir: caches features for the next run; empty: no cache.
        report: lines for report.html, such as the command; None: no report
            and no model card.
        log: takes a line.

    Raises:
        UserError: for settings, data and weights that do not fit together.
        RunStopped: when it ends early or after a signal (see loop.py).
    """
    runtime = runtime or RuntimeConfig()
    strategy = strategy_for(config, runtime)
    choose_settings = lookup(RECIPES, recipe, "recipe")
    tokenizer = load_fitting_tokenizer(initial.tokenizer_path, initial.config)
    examples = read_examples(task, data_dir, log)
    before = RecordedDivision.of_model(os.path.dirname(initial.source))
    for split in task.evaluated.values():
        if line := learned_before(before, task, examples[split], data_dir):
            log(line)
    config, model_config, recipe_line = _with_recipe(
        choose_settings(task, initial.config, examples[TRAIN]),
        config,
        initial.config,
        model_changes or {},
        task.kind.lengths,
        log,
    )
    _check_settings(config, model_config)
    if config.finetuning.double_unordered:
        examples[TRAIN] = in_both_orders(task, examples[TRAIN])
    labels = list(task.labels) or task.kind.labels(examples[TRAIN])
    builder = FeatureBuilder(
        task.kind, tokenizer, config.features, labels, workers, cache_dir, log
    )
    data = finetuning_data(config, task, data_dir, examples, builder)
    _warn_of_untrained_positions(data.features, initial, log)
    metrics = task.kind.metric_names(task.metrics, labels)
    config = extended(
        with_steps(config, config.finetuning, len(data.features), metrics[0]),
        runtime,
    )
    config = with_micro_batch_size(
        config,
        strategy,
        run_dir,
        model_config,
        batch_size=config.training.train_batch_size,
        seq_length=config.features.max_seq_length,
        choices=max(data.features.choices, 1),
    )
    return train(
        FinetuningJob(
            config=config,
            strategy=strategy,
            run_dir=run_dir,
            runtime=runtime,
            model_config=model_config,
            tokenizer=tokenizer,
            initial=initial,
            training_loss=head_loss(
                task.kind.head, data.label_scaling.deviation**-2
            ),
            sources=SourceSchedule([data.training_batches(config)], [0]),
            best_metric=config.training.best_metric,
            metric_names=_metric_names(task, metrics),
            log=log,
            data=data,
            report=None
            if report is None
            else [*report, *filter(None, [recipe_line])],
        )
    )


def _with_recipe(
    recipe: Recipe,
    config: FinetuneConfig,
    model: ModelConfig,
    model_changes: Mapping[str, Any],
    lengths: Sequence[str],
    log: Log,
) -> tuple[FinetuneConfig, ModelConfig, str]:
    """Returns the settings with the recipe's, the architecture, and a line.

    Those of `lengths` that are not given follow max_seq_length.
    """
    given = given_settings(config)
    config, model_changes, line = with_recipe(config, model_changes, recipe)
    if line:
        log(line)
    positions = model.max_position_embeddings
    is_longer = config.features.max_seq_length > positions
    if is_longer and "max_seq_length" not in given:
        log(f"max_seq_length={positions}: the model has no more positions.")
        config = override(config, {"max_seq_length": positions})
        # Runs of earlier versions have these of every kind of task.
        lengths = *lengths, "max_query_length", "max_choice_length"
    fitting = lengths_within(config.features, {*lengths} - given.keys())
    config = override(config, fitting)
    return config, override(model, model_changes), line


def _check_settings(config: FinetuneConfig, model_config: ModelConfig) -> None:
    alpha = config.finetuning.lora_alpha
    require(
        not alpha or config.finetuning.lora_rank > 0,
        f"lora_alpha={alpha} is the scale of adapters; give lora_rank too.",
    )
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


def _metric_names(task: Task, metrics: Sequence[str]) -> list[str]:
    """Returns the names of what is evaluated, of every split."""
    return [
        f"{name}{suffix}"
        for suffix in task.evaluated
        for name in ("loss", *metrics)
    ]


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
