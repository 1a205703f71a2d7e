"""The pretraining job: masked LM and what pairs of segments teach."""

import os

import keras

from albert_tf.config import PretrainConfig, UserError, to_dict
from albert_tf.interchange.model_directory import (
    InitialWeights,
    check_vocab_size,
    initialize,
    save_model_directory,
)
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.text.shards import (
    TOKENIZER_DIRECTORY,
    ShardSet,
    open_shards,
)
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.tokenizer_base import Tokenizer
from albert_tf.training import run_directory
from albert_tf.training.distribution import check_batch_size, make_strategy
from albert_tf.training.evaluate import evaluate_pretraining
from albert_tf.training.input_pipeline import (
    PretrainingBatches,
    check_same_vocabulary,
    check_shards,
    sentence_targets,
)
from albert_tf.training.loop import train
from albert_tf.training.objectives import pretraining_objective
from albert_tf.training.trainer import DTYPE_POLICIES, Trainer


def shard_tokenizer(shards: ShardSet) -> Tokenizer:
    """Returns the tokenizer that lies beside a directory of shards."""
    return load_tokenizer(os.path.join(shards.directory, TOKENIZER_DIRECTORY))


def _check_objective(wanted: str, taught: str, directory: str) -> None:
    """Raises UserError where shards teach another objective than wanted."""
    if wanted and wanted != taught:
        raise UserError(
            f"{directory} was built with sentence_objective={taught}, and "
            f"this run is to learn sentence_objective={wanted}: build its "
            "shards by python -m bin.build_pretraining_data "
            f"--sentence_objective={wanted}, or give this run "
            f"--sentence_objective={taught}."
        )


def run_pretraining(
    config: PretrainConfig,
    *,
    train_data: str,
    eval_data: str,
    run_dir: str,
    strategy_name: str = "default",
    num_replicas: int = 0,
    initial: InitialWeights | None = None,
) -> dict[str, float]:
    """Pretrains to the end and returns the last evaluation.

    What the sentence head learns is the `sentence_objective` of the shards;
    a configuration that names one is refused where they teach another.
    The model has that head even where nothing trains it (none), so that a
    run on other shards can start from it.

    Writes the run directory: config.json, checkpoints/, tensorboard/,
    metrics.jsonl and, at the end, model/. Started again, it goes on where it
    was.

    Args:
        config: every setting.
        train_data: a directory of shards, or a glob; split "train".
        eval_data: the same; split "eval".
        run_dir: made where missing.
        strategy_name: a row of STRATEGIES.
        num_replicas: 0 for every device.
        initial: weights to start from instead of random ones.

    Raises:
        UserError: for anything that does not fit together.
    """
    if not config.training.num_train_steps:
        raise UserError("num_train_steps=0; pretraining needs at least 1.")
    strategy = make_strategy(strategy_name, num_replicas)
    for name in ("train_batch_size", "eval_batch_size"):
        check_batch_size(name, getattr(config.training, name), strategy)
    shards = open_shards(train_data, "train")
    eval_shards = open_shards(eval_data, "eval")
    tokenizer = shard_tokenizer(shards)
    for part in (shards, eval_shards):
        check_shards(config.model, part, tokenizer)
    sentence = sentence_targets(shards, eval_shards)
    _check_objective(
        config.pretraining.sentence_objective, sentence.name, shards.directory
    )
    if initial and initial.directory:
        check_same_vocabulary(
            load_tokenizer(initial.directory), initial.source, tokenizer
        )
    check_vocab_size(config.model, tokenizer, shards.directory)
    description = {
        "job": "pretrain",
        "config": to_dict(config),
        "train_data": shards.fingerprint,
        "eval_data": eval_shards.fingerprint,
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
            pretraining_objective(sentence),
            strategy=strategy,
            optimizer_config=config.optimizer,
            training_config=config.training,
        )
    # Only now that everything fits: a corrected command may use the same
    # directory.
    run_directory.claim(run_dir, description)
    print(
        f"Sentence objective {sentence.name}: {sentence.meaning}.", flush=True
    )
    batches, eval_batches = (
        PretrainingBatches(
            part,
            masking_config=config.masking,
            batch_size=batch_size,
            seed=config.training.seed,
            training=part is shards,
        )
        for part, batch_size in (
            (shards, config.training.train_batch_size),
            (eval_shards, config.training.eval_batch_size),
        )
    )
    evaluation = train(
        trainer,
        batches,
        lambda: evaluate_pretraining(
            trainer, eval_batches, config.training.max_eval_steps
        ),
        run_dir=run_dir,
        config=config.training,
        description=description,
    )
    save_model_directory(
        os.path.join(run_dir, "model"),
        model,
        tokenizer,
        max_seq_length=batches.max_seq_length,
    )
    return evaluation
