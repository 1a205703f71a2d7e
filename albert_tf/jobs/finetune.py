"""The fine-tuning job: a task's head on a pretrained encoder."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from albert_tf.cluster.distribution import make_strategy
from albert_tf.config import (
    FinetuneConfig,
    RuntimeConfig,
    UserError,
    override,
    to_dict,
)
from albert_tf.inputs.input_pipeline import Batch
from albert_tf.inputs.length_buckets import TaskBatches, bucket_widths
from albert_tf.inputs.phases import DepthSchedule, Phases
from albert_tf.interchange.model_directory import (
    InitialWeights,
    check_vocab_size,
    initialize,
    save_model_directory,
)
from albert_tf.interchange.task_record import TaskRecord
from albert_tf.jobs.micro_batch import AUTO, resolved_micro_batch
from albert_tf.jobs.pictures import draw
from albert_tf.jobs.task_evaluation import EvaluatedExamples, scores_of
from albert_tf.jobs.workload import Workload
from albert_tf.modeling.accounting import training_flops
from albert_tf.modeling.encoder import sharing_plan
from albert_tf.modeling.models import model_class
from albert_tf.optim.schedules import warm_up_warnings
from albert_tf.rundir.run_directory import extended
from albert_tf.tasks.base import Task
from albert_tf.tasks.feature_building import FeatureBuilder, examples_digest
from albert_tf.tasks.kinds.base import Answers, Figure
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.training.job import Job
from albert_tf.training.loop import train
from albert_tf.training.objectives import HeadObjective
from albert_tf.training.trainer import DTYPE_POLICIES, Trainer


def resolve_steps(config: FinetuneConfig, num_rows: int) -> FinetuneConfig:
    """Returns the configuration with steps in place of epochs.

    Raises:
        UserError: when neither is given.
    """
    steps = config.training.num_train_steps or math.ceil(
        config.finetuning.num_train_epochs
        * num_rows
        / config.training.train_batch_size
    )
    if not steps:
        raise UserError(
            "num_train_steps and num_train_epochs are both 0; "
            "fine-tuning needs at least 1 step."
        )
    warmup = config.optimizer.num_warmup_steps or round(
        config.finetuning.warmup_proportion * steps
    )
    return override(
        config, {"num_train_steps": steps, "num_warmup_steps": warmup}
    )


def run_finetuning(
    config: FinetuneConfig,
    task: Task,
    *,
    data_dir: str,
    run_dir: str,
    initial: InitialWeights,
    tokenizer_dir: str = "",
    model_changes: dict | None = None,
    runtime: RuntimeConfig | None = None,
    workers: int = 1,
    cache_dir: str = "",
    say: Callable[[str], None] = print,
) -> dict[str, float]:
    """Fine-tunes to the end and returns the evaluation on the dev examples.

    Args:
        config: every setting; the architecture is that of `initial`.
        task: what to learn.
        data_dir: the task's files.
        run_dir: made where missing; as in `run_pretraining`.
        initial: the pretrained weights.
        tokenizer_dir: where `initial` brings no tokenizer.
        model_changes: settings of the architecture to change (dropout).
        runtime: where and how it runs.
        workers: processes that make features.
        cache_dir: where features are kept; empty: nowhere.
        say: takes a line for people.

    Raises:
        UserError: for anything that does not fit together.
        RunStopped: when it ends before its last step (see loop.py).
    """
    runtime = runtime or RuntimeConfig()
    strategy = make_strategy(runtime)
    directory = tokenizer_dir or initial.tokenizer_place
    tokenizer = load_tokenizer(directory)
    model_config = override(initial.config, model_changes or {})
    check_vocab_size(model_config, tokenizer, directory)
    max_seq_length = config.features.max_seq_length
    if max_seq_length > model_config.max_position_embeddings:
        raise UserError(
            f"max_seq_length={max_seq_length} exceeds the model's "
            f"max_position_embeddings={model_config.max_position_embeddings}; "
            "lower --max_seq_length."
        )
    if (
        config.finetuning.padding == "bucket"
        and config.training.steps_per_loop > 1
    ):
        raise UserError(
            f"steps_per_loop={config.training.steps_per_loop} needs batches of "
            "one width; give --padding=max too."
        )
    examples = {
        split: task.read(data_dir, split, say)
        for split in ("train", *task.evaluated.values())
    }
    kind = task.kind
    labels = list(task.labels) or kind.labels(examples["train"])
    for split, of_split in examples.items():
        _check_told(task, of_split, split)
    if config.finetuning.double_unordered:
        examples["train"] = _doubled(task, examples["train"])
    builder = FeatureBuilder(
        kind, tokenizer, config.features, labels, workers, cache_dir, say
    )
    features = builder.build(examples["train"], training=True)
    config = extended(resolve_steps(config, len(features)), runtime)
    measured = kind.metric_names(task.metrics, labels)
    if features.choices and config.training.micro_batch_size == AUTO:
        raise UserError(
            "micro_batch_size=auto tries single sequences, and an example of "
            f"{task.name} has {features.choices}; give a number of examples."
        )
    config = override(
        config,
        {
            "best_metric": config.training.best_metric or measured[0],
            "micro_batch_size": resolved_micro_batch(
                config.training.micro_batch_size,
                strategy,
                run_dir,
                # The head is a trifle beside the encoder, and so is the
                # masked-LM head at one position.
                Workload(
                    model=model_config,
                    batch_size=config.training.train_batch_size,
                    seq_length=max_seq_length,
                    num_predictions=1,
                    training=config.training,
                    optimizer=config.optimizer,
                ),
            ),
        },
    )
    widths = (
        bucket_widths(max_seq_length)
        if config.finetuning.padding == "bucket"
        else (max_seq_length,)
    )
    batches = TaskBatches(
        features,
        batch_size=config.training.train_batch_size,
        seed=config.training.seed,
        widths=widths,
        training=True,
        name_of=lambda row: (
            examples["train"][features.example_numbers[row]].location
        ),
    )
    most = config.training.max_eval_steps * config.training.eval_batch_size
    evaluated = {
        ending: EvaluatedExamples.made(
            builder,
            examples[split][: most or None],
            batch_size=config.training.eval_batch_size,
            widths=widths,
        )
        for ending, split in task.evaluated.items()
    }
    description = {
        "job": "finetune",
        "task": task.name,
        "config": to_dict(config),
        "model": to_dict(model_config),
        "labels": labels,
        "train_examples": examples_digest(examples["train"]),
        "dev_examples": [
            examples_digest(examples[split])
            for split in task.evaluated.values()
        ],
        "tokenizer": tokenizer.fingerprint,
        "init_from": initial.fingerprint,
    }
    with strategy.scope():
        keras.utils.set_random_seed(config.training.seed)
        model = model_class(kind.head)(
            model_config,
            **({"labels": labels} if kind.labelled else {}),
            remat=config.training.remat,
            dtype=DTYPE_POLICIES[config.training.precision],
        )
        say(initialize(model, initial))
        trainer = Trainer(
            model,
            HeadObjective(kind.head),
            strategy=strategy,
            optimizer_config=config.optimizer,
            training_config=config.training,
        )

    # Of the last evaluation.
    pictures: dict[str, Figure] = {}

    def evaluate(step: int) -> dict[str, float]:
        measures: dict[str, float] = {}
        for ending, part in evaluated.items():
            loss, scores = scores_of(trainer, kind, part, config.features)
            answers = Answers(part.examples, scores, config.features, labels)
            pictures[ending] = kind.figure(answers)
            only = kind.constant_prediction(answers)
            if only and step >= config.optimizer.num_warmup_steps:
                split = task.evaluated[ending]
                say(_collapse(only, split, step, config))
            found = {"loss": loss} | kind.compute_metrics(answers, task.metrics)
            measures |= {f"{n}{ending}": value for n, value in found.items()}
        return measures

    def export(place: str, evaluation: Mapping[str, float]) -> None:
        kept = kind.config_to_save(config.features, evaluation)
        save_model_directory(
            place,
            model,
            tokenizer,
            max_seq_length=max_seq_length,
            task=TaskRecord(task.name, kept),
        )

    def flops(step: int, batch: Batch) -> int:
        widths = trainer.widths(batch)
        rows = config.training.train_batch_size // len(widths)
        return sum(
            training_flops(
                model_config,
                batch_size=rows * max(features.choices, 1),
                seq_length=width,
                num_predictions=0,
                read_positions_only=model.reads_places_only(),
            )
            for width in widths
        )

    return train(
        trainer,
        Job(
            phases=Phases([batches], [config.training.num_train_steps]),
            depths=DepthSchedule("", len(sharing_plan(model_config))),
            evaluate=evaluate,
            best_metric=config.training.best_metric,
            metric_names=[
                f"{name}{ending}"
                for ending in task.evaluated
                for name in ("loss", *measured)
            ],
            export=export,
            flops=flops,
            figures=lambda: {
                f"answers{ending}": draw(
                    picture, f"{task.name}, {task.evaluated[ending]}"
                )
                for ending, picture in pictures.items()
            },
            warnings=warm_up_warnings(
                config.optimizer, config.training.num_train_steps
            ),
        ),
        run_dir=run_dir,
        config=config.training,
        runtime=runtime,
        description=description,
    )


def _collapse(only: str, split: str, step: int, config: FinetuneConfig) -> str:
    """Returns what to say of a model with one answer to everything.

    The large second models have been reported to end so with the paper's
    learning rates (google-research/albert's README lowers RACE's for them).
    """
    rate = config.optimizer.learning_rate
    return (
        f"All {split} examples get the same answer at step {step}: "
        f"{only}. The model has diverged, or learned nothing yet; if it stays "
        f"so, start again in another --run_dir, with "
        f"--learning_rate={rate / 2:g} where it is a large one, and more steps "
        "or a higher rate where it is a small one."
    )


def _doubled(task: Task, examples: Sequence[Any]) -> Sequence[Any]:
    if task.ordered:
        raise UserError(
            f"double_unordered swaps the texts of pairs, and the labels of "
            f"{task.name} depend on their order."
        )
    return task.kind.in_both_orders(examples)


def _check_told(task: Task, examples: Sequence[Any], split: str) -> None:
    untold = next((e for e in examples if not task.kind.has_label(e)), None)
    if untold is not None:
        raise UserError(
            f"{untold.location} has no answer; {split} examples of {task.name} "
            "need one."
        )
