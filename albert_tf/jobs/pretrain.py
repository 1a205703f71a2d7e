"""The pretraining job: masked LM and what pairs of segments teach."""

import dataclasses
import os
from collections.abc import Iterator, Sequence

import keras

from albert_tf.cluster.distribution import make_strategy
from albert_tf.config import (
    PretrainConfig,
    RuntimeConfig,
    UserError,
    lookup,
    override,
    to_dict,
)
from albert_tf.inputs.input_pipeline import (
    Batch,
    PretrainingBatches,
    check_same_vocabulary,
    check_shards,
    sentence_objective,
)
from albert_tf.inputs.phases import DepthSchedule, Phases, numbers_of
from albert_tf.interchange.model_directory import (
    InitialWeights,
    check_vocab_size,
    initialize,
    save_model_directory,
)
from albert_tf.jobs.evaluate import (
    evaluate_pretraining,
    pretraining_measures,
)
from albert_tf.jobs.micro_batch import resolved_micro_batch
from albert_tf.jobs.sample_predictions import masked_sentences
from albert_tf.jobs.workload import Workload
from albert_tf.modeling.accounting import training_flops
from albert_tf.modeling.encoder import sharing_plan
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.optim.schedules import warm_up_warnings
from albert_tf.records.sentence_objectives import (
    SENTENCE_OBJECTIVES,
    SentenceObjective,
)
from albert_tf.records.shards import (
    TOKENIZER_DIRECTORY,
    ShardSet,
    open_shards,
)
from albert_tf.rundir.run_directory import extended
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.tokenizer_base import Tokenizer
from albert_tf.training.job import Job
from albert_tf.training.loop import train
from albert_tf.training.objectives import pretraining_objective
from albert_tf.training.trainer import DTYPE_POLICIES, Trainer

# Held-out segments whose guesses are shown at each evaluation.
_SHOWN_SENTENCES = 4


def shard_tokenizer(shards: ShardSet) -> Tokenizer:
    """Returns the tokenizer that lies beside a directory of shards."""
    return load_tokenizer(os.path.join(shards.directory, TOKENIZER_DIRECTORY))


def _check_objective(wanted: str, taught: str, directory: str) -> None:
    """Raises UserError where shards teach another objective than wanted."""
    if wanted and wanted != taught:
        lookup(SENTENCE_OBJECTIVES, wanted, "sentence_objective")
        raise UserError(
            f"{directory} was built with sentence_objective={taught}, and "
            f"this run is to learn sentence_objective={wanted}: build its "
            "shards by python -m bin.build_pretraining_data "
            f"--sentence_objective={wanted}, or give this run "
            f"--sentence_objective={taught}."
        )


@dataclasses.dataclass(frozen=True)
class _Data:
    """The shards of a run.

    Attributes:
        train: a directory for each phase.
        evaluation: the same.
        tokenizer: of all of them.
        steps: of each phase.
        batch_sizes: of each phase.
        sentence: their sentence objective.
    """

    train: list[ShardSet]
    evaluation: list[ShardSet]
    tokenizer: Tokenizer
    steps: list[int]
    batch_sizes: list[int]
    sentence: SentenceObjective


def _open_data(
    config: PretrainConfig, train_data: Sequence[str], eval_data: Sequence[str]
) -> _Data:
    """Returns the shards of every phase, checked against each other."""
    count = len(train_data)
    if len(eval_data) not in (1, count):
        raise UserError(
            f"--eval_data names {len(eval_data)} directories and --train_data "
            f"{count}; give one for all phases, or one for each."
        )
    settings, steps = config.pretraining, [config.training.num_train_steps]
    if count > 1 or settings.phases:
        steps = numbers_of("phases", settings.phases, count)
    if sum(steps) != config.training.num_train_steps:
        raise UserError(
            f"phases={settings.phases} makes {sum(steps)} steps, and "
            f"num_train_steps is {config.training.num_train_steps}; they "
            "must agree."
        )
    sizes = [config.training.train_batch_size] * count
    if settings.phase_batch_sizes:
        sizes = numbers_of(
            "phase_batch_sizes", settings.phase_batch_sizes, count
        )
    shards = [open_shards(path, "train") for path in train_data]
    held_out = [open_shards(path, "eval") for path in eval_data]
    tokenizer = shard_tokenizer(shards[0])
    for part in (*shards, *held_out):
        check_shards(config.model, part, tokenizer)
    return _Data(
        train=shards,
        evaluation=held_out * (count if len(held_out) == 1 else 1),
        tokenizer=tokenizer,
        steps=steps,
        batch_sizes=sizes,
        sentence=sentence_objective(*shards, *held_out),
    )


def _batches(
    config: PretrainConfig, part: ShardSet, batch_size: int, training: bool
) -> PretrainingBatches:
    return PretrainingBatches(
        part,
        masking_config=config.masking,
        batch_size=batch_size,
        seed=config.training.seed,
        training=training,
    )


def _phases(config: PretrainConfig, data: _Data) -> Phases:
    return Phases(
        [
            _batches(config, part, size, training=True)
            for part, size in zip(data.train, data.batch_sizes, strict=True)
        ],
        data.steps,
    )


def _remarks(data: _Data) -> Iterator[str]:
    yield f"Sentence objective {data.sentence.name}: {data.sentence.meaning}."
    for part, held_out in zip(data.train, data.evaluation, strict=True):
        theirs, ours = (
            shards.metadata["max_seq_length"] for shards in (held_out, part)
        )
        if theirs != ours:
            yield (
                f"{part.directory} has sequences of {ours} tokens, and the "
                f"held-out ones of {held_out.directory} have {theirs}."
            )


def _largest_work(config: PretrainConfig, phases: Phases) -> Workload:
    """Returns a step that takes as much memory as any of the run."""
    return Workload(
        model=config.model,
        batch_size=max(s.batch_size for s in phases.sources),
        seq_length=max(s.max_seq_length for s in phases.sources),
        num_predictions=max(s.num_predictions for s in phases.sources),
        training=config.training,
        optimizer=config.optimizer,
    )


def run_pretraining(
    config: PretrainConfig,
    *,
    train_data: Sequence[str],
    eval_data: Sequence[str],
    run_dir: str,
    runtime: RuntimeConfig | None = None,
    initial: InitialWeights | None = None,
) -> dict[str, float]:
    """Pretrains to the end and returns the last evaluation.

    What the sentence head learns is the `sentence_objective` of the shards;
    a configuration that names one is refused where they teach another.
    The model has that head even where nothing trains it (none), so that a
    run on other shards can start from it.

    Writes the run directory: config.json, checkpoints/, tensorboard/,
    metrics.jsonl, best_model/ and, at the end, model/. Started again, it
    goes on where it was.

    Args:
        config: every setting that decides the result.
        train_data: a directory of shards, or a glob, for each phase; split
            "train".
        eval_data: the same, or one for all phases; split "eval".
        run_dir: made where missing.
        runtime: where and how it runs.
        initial: weights to start from instead of random ones.

    Raises:
        UserError: for anything that does not fit together.
        RunStopped: when it ends before its last step (see loop.py).
    """
    if not config.training.num_train_steps:
        raise UserError("num_train_steps=0; pretraining needs at least 1.")
    runtime = runtime or RuntimeConfig()
    depths = DepthSchedule(
        config.pretraining.depth_schedule, len(sharing_plan(config.model))
    )
    strategy = make_strategy(runtime)
    data = _open_data(config, train_data, eval_data)
    tokenizer = data.tokenizer
    _check_objective(
        config.pretraining.sentence_objective,
        data.sentence.name,
        data.train[0].directory,
    )
    if initial and initial.directory:
        check_same_vocabulary(
            load_tokenizer(initial.directory), initial.source, tokenizer
        )
    check_vocab_size(config.model, tokenizer, data.train[0].directory)
    phases = _phases(config, data)
    config = extended(config, runtime)
    config = override(
        config,
        {
            "micro_batch_size": resolved_micro_batch(
                config.training.micro_batch_size,
                strategy,
                run_dir,
                _largest_work(config, phases),
            )
        },
    )
    description = {
        "job": "pretrain",
        "config": to_dict(config),
        "train_data": [part.fingerprint for part in data.train],
        "eval_data": [part.fingerprint for part in data.evaluation],
        "tokenizer": tokenizer.fingerprint,
        "init_from": initial.fingerprint if initial else "",
    }
    with strategy.scope():
        keras.utils.set_random_seed(config.training.seed)
        model = AlbertForPretraining(
            config.model,
            remat=config.training.remat,
            dtype=DTYPE_POLICIES[config.training.precision],
        )
        if initial:
            print(initialize(model, initial), flush=True)
        trainer = Trainer(
            model,
            pretraining_objective(data.sentence),
            strategy=strategy,
            optimizer_config=config.optimizer,
            training_config=config.training,
        )

    held_out = [
        _batches(config, part, config.training.eval_batch_size, training=False)
        for part in data.evaluation
    ]

    def evaluate(step: int) -> dict[str, float]:
        # A phase is over with its last step.
        return evaluate_pretraining(
            trainer,
            held_out[phases.number(step - 1)],
            config.training.max_eval_steps,
            depths.at(step - 1),
        )

    def flops(step: int, batch: Batch) -> int:
        source = phases.source(step)
        return training_flops(
            config.model,
            batch_size=source.batch_size,
            seq_length=source.max_seq_length,
            num_predictions=source.num_predictions,
            read_positions_only=True,
            num_applications=depths.at(step),
        )

    def samples() -> str:
        batch = held_out[-1].batch(0, range(_SHOWN_SENTENCES))
        return masked_sentences(
            tokenizer, batch, trainer.outputs(batch)["masked_lm_logits"]
        )

    return train(
        trainer,
        Job(
            phases=phases,
            depths=depths,
            evaluate=evaluate,
            best_metric=config.training.best_metric or "loss",
            metric_names=pretraining_measures(trainer.objective.targets),
            export=lambda directory, evaluation: save_model_directory(
                directory,
                model,
                tokenizer,
                max_seq_length=max(s.max_seq_length for s in phases.sources),
            ),
            flops=flops,
            samples=samples,
            warnings=(
                *_remarks(data),
                *warm_up_warnings(
                    config.optimizer, config.training.num_train_steps
                ),
            ),
        ),
        run_dir=run_dir,
        config=config.training,
        runtime=runtime,
        description=description,
    )
