"""The pretraining job: masked LM and the sentence objective of the shards."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.cluster.distribution import make_strategy
from albert_tf.config import (
    PretrainConfig,
    RuntimeConfig,
    lookup,
    require,
    sharing_plan,
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
    save_model_directory,
)
from albert_tf.jobs.evaluate import (
    evaluate_pretraining,
    pretraining_metric_names,
)
from albert_tf.jobs.sample_predictions import masked_sentences
from albert_tf.jobs.training_job import (
    Environment,
    TrainingJob,
    resolve_for_machine,
)
from albert_tf.jobs.workload import Workload
from albert_tf.modeling.accounting import training_flops
from albert_tf.modeling.models import AlbertForPretraining, AlbertModel
from albert_tf.records.sentence_objectives import (
    SENTENCE_OBJECTIVES,
    SentenceObjective,
)
from albert_tf.records.shards import (
    TOKENIZER_DIRECTORY,
    ShardSet,
    open_shards,
)
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.tokenizer_base import Tokenizer
from albert_tf.training.objectives import pretraining_objective

# Held-out segments whose predictions are logged at each evaluation.
_NUM_SAMPLES = 4


def run_pretraining(
    config: PretrainConfig,
    *,
    train_data: Sequence[str],
    eval_data: Sequence[str],
    run_dir: str,
    runtime: RuntimeConfig | None = None,
    initial: InitialWeights | None = None,
) -> dict[str, float]:
    """Pretrains to the last step and returns the last evaluation.

    The sentence head learns the `sentence_objective` of the shards; a
    configuration that names another one is refused. The model has that head
    even where nothing trains it (none), so that a run on other shards can
    start from it.

    Writes the run directory: config.json, checkpoints/, tensorboard/,
    metrics.jsonl, best_model/ and, at the end, model/. Started again, it
    resumes from the newest checkpoint.

    Args:
        config: all settings that decide the result.
        train_data: a directory of shards, or a glob, per phase; split "train".
        eval_data: likewise, or one for all phases; split "eval".
        run_dir: created if missing.
        runtime: settings that do not decide the result.
        initial: weights to start from instead of random ones.

    Raises:
        UserError: for settings, shards and weights that do not fit together.
        RunStopped: when it ends before its last step (see loop.py).
    """
    require(
        config.training.num_train_steps > 0,
        "num_train_steps=0; pretraining needs at least 1.",
    )
    runtime = runtime or RuntimeConfig()
    depths = DepthSchedule(
        config.pretraining.depth_schedule, len(sharing_plan(config.model))
    )
    environment = Environment(make_strategy(runtime), run_dir, runtime)
    data = _open_data(config, train_data, eval_data)
    _check_vocabulary(config, data, initial)
    sources: Sequence[Any] = data.phases.sources
    config = resolve_for_machine(
        config,
        environment,
        Workload(
            model=config.model,
            batch_size=max(s.batch_size for s in sources),
            seq_length=max(s.max_seq_length for s in sources),
            num_predictions=max(s.num_predictions for s in sources),
            training=config.training,
            optimizer=config.optimizer,
        ),
    )
    objective = pretraining_objective(data.objective)
    job = _Pretraining(
        config=config,
        environment=environment,
        model_config=config.model,
        tokenizer=data.tokenizer,
        initial=initial,
        objective=objective,
        phases=data.phases,
        depths=depths,
        best_metric=config.training.best_metric or "loss",
        metric_names=pretraining_metric_names(objective.targets),
        warnings=data.warnings(),
        data=data,
    )
    return job.run()


@dataclasses.dataclass(frozen=True)
class _Data:
    """The shards of a run and their batches, per phase.

    Attributes:
        train: shards of split "train".
        evaluation: shards of split "eval".
        tokenizer: that of all shards.
        objective: the sentence objective of all shards.
        phases: batches of `train`.
        held_out: batches of `evaluation`.
    """

    train: list[ShardSet]
    evaluation: list[ShardSet]
    tokenizer: Tokenizer
    objective: SentenceObjective
    phases: Phases
    held_out: list[PretrainingBatches]

    def warnings(self) -> tuple[str, ...]:
        """Returns lines for the log: the objective, unequal lengths."""
        objective = self.objective
        lines = [f"Sentence objective {objective.name}: {objective.meaning}."]
        for train, held_out in zip(self.train, self.evaluation, strict=True):
            ours, theirs = (
                shards.metadata["max_seq_length"]
                for shards in (train, held_out)
            )
            if ours != theirs:
                lines.append(
                    f"{train.directory} has sequences of {ours} tokens, and "
                    f"the held-out ones of {held_out.directory} have {theirs}."
                )
        return tuple(lines)


def _open_data(
    config: PretrainConfig, train_data: Sequence[str], eval_data: Sequence[str]
) -> _Data:
    """Returns the shards of every phase, checked against each other."""
    count = len(train_data)
    require(
        len(eval_data) in (1, count),
        f"--eval_data names {len(eval_data)} directories and --train_data "
        f"{count}; give one for all phases, or one for each.",
    )
    settings, steps = config.pretraining, [config.training.num_train_steps]
    if count > 1 or settings.phases:
        steps = numbers_of("phases", settings.phases, count)
    require(
        sum(steps) == config.training.num_train_steps,
        f"phases={settings.phases} makes {sum(steps)} steps, and "
        f"num_train_steps is {config.training.num_train_steps}; they must "
        "agree.",
    )
    batch_sizes = [config.training.train_batch_size] * count
    if settings.phase_batch_sizes:
        batch_sizes = numbers_of(
            "phase_batch_sizes", settings.phase_batch_sizes, count
        )
    train = [open_shards(path, "train") for path in train_data]
    evaluation = [open_shards(path, "eval") for path in eval_data]
    tokenizer = load_tokenizer(
        os.path.join(train[0].directory, TOKENIZER_DIRECTORY)
    )
    for shards in (*train, *evaluation):
        check_shards(config.model, shards, tokenizer)
    objective = sentence_objective(*train, *evaluation)
    if len(evaluation) == 1:
        evaluation *= count

    def batches(
        shards: ShardSet, batch_size: int, training: bool
    ) -> PretrainingBatches:
        return PretrainingBatches(
            shards,
            masking_config=config.masking,
            batch_size=batch_size,
            seed=config.training.seed,
            training=training,
        )

    return _Data(
        train=train,
        evaluation=evaluation,
        tokenizer=tokenizer,
        objective=objective,
        phases=Phases(
            [
                batches(shards, size, True)
                for shards, size in zip(train, batch_sizes, strict=True)
            ],
            steps,
        ),
        held_out=[
            batches(shards, config.training.eval_batch_size, False)
            for shards in evaluation
        ],
    )


def _check_vocabulary(
    config: PretrainConfig, data: _Data, initial: InitialWeights | None
) -> None:
    """Raises UserError unless shards, weights and settings agree."""
    expected, found = config.pretraining.sentence_objective, data.objective.name
    if expected:
        lookup(SENTENCE_OBJECTIVES, expected, "sentence_objective")
    directory = data.train[0].directory
    require(
        expected in ("", found),
        f"{directory} was built with sentence_objective={found}, and this run "
        f"is to learn sentence_objective={expected}: build its shards by "
        f"python -m bin.build_pretraining_data --sentence_objective={expected}"
        f", or give this run --sentence_objective={found}.",
    )
    if initial and initial.directory:
        check_same_vocabulary(
            load_tokenizer(initial.directory), initial.source, data.tokenizer
        )
    check_vocab_size(config.model, data.tokenizer, directory)


@dataclasses.dataclass(kw_only=True)
class _Pretraining(TrainingJob):
    """Pretraining on shards."""

    data: _Data

    def build_model(self, **options: Any) -> AlbertModel:
        return AlbertForPretraining(self.model_config, **options)

    def description(self) -> dict:
        return {
            "job": "pretrain",
            "config": to_dict(self.config),
            "train_data": [part.fingerprint for part in self.data.train],
            "eval_data": [part.fingerprint for part in self.data.evaluation],
            "tokenizer": self.tokenizer.fingerprint,
            "init_from": self.initial.fingerprint if self.initial else "",
        }

    def evaluate(self, step: int) -> dict[str, float]:
        # A phase is over with its last step.
        return evaluate_pretraining(
            self.trainer,
            self.data.held_out[self.phases.number(step - 1)],
            self.config.training.max_eval_steps,
            self.depths.at(step - 1),
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
        batch = self.data.held_out[-1].batch(0, range(_NUM_SAMPLES))
        logits = self.trainer.outputs(batch)["masked_lm_logits"]
        return masked_sentences(self.tokenizer, batch, logits)
