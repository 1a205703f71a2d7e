"""The fine-tuning job: a task's head on a pretrained encoder."""

import hashlib
import math

import keras

from albert_tf.config import (
    FinetuneConfig,
    RuntimeConfig,
    UserError,
    override,
    to_dict,
)
from albert_tf.interchange.model_directory import (
    InitialWeights,
    check_vocab_size,
    initialize,
    save_model_directory,
)
from albert_tf.modeling.arithmetic import training_flops
from albert_tf.modeling.encoder import sharing_plan
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.modeling.schedules import warm_up_remarks
from albert_tf.tasks.base import Example, Task, label_names, label_numbers
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.training.distribution import make_strategy
from albert_tf.training.evaluate import evaluate_classification
from albert_tf.training.input_pipeline import ClassificationBatches
from albert_tf.training.job import Job
from albert_tf.training.loop import train
from albert_tf.training.micro_batch import resolved_micro_batch
from albert_tf.training.objectives import classification_objective
from albert_tf.training.phases import DepthSchedule, Phases
from albert_tf.training.trainer import DTYPE_POLICIES, Trainer
from albert_tf.training.workload import Workload


def resolve_steps(config: FinetuneConfig, num_examples: int) -> FinetuneConfig:
    """Returns the configuration with steps in place of epochs.

    Raises:
        UserError: when neither is given.
    """
    steps = config.training.num_train_steps or math.ceil(
        config.finetuning.num_train_epochs
        * num_examples
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


def _fingerprint(examples: list[Example]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        text = "\t".join(example.texts)
        digest.update(f"{example.label}\t{text}\n".encode())
    return digest.hexdigest()


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

    Raises:
        UserError: for anything that does not fit together.
        RunStopped: when it ends before its last step (see loop.py).
    """
    runtime = runtime or RuntimeConfig()
    strategy = make_strategy(runtime)
    directory = tokenizer_dir or initial.directory
    if not directory:
        raise UserError(
            f"{initial.source} comes without a tokenizer; name one with "
            "--tokenizer."
        )
    tokenizer = load_tokenizer(directory)
    model_config = override(initial.config, model_changes or {})
    check_vocab_size(model_config, tokenizer, directory)
    max_seq_length = config.finetuning.max_seq_length
    if max_seq_length > model_config.max_position_embeddings:
        raise UserError(
            f"max_seq_length={max_seq_length} exceeds the model's "
            f"max_position_embeddings={model_config.max_position_embeddings}; "
            "lower --max_seq_length."
        )
    examples = {
        split: task.read_examples(data_dir, split) for split in ("train", "dev")
    }
    labels = label_names(examples["train"])
    if len(labels) < 2:
        raise UserError(
            f"{data_dir}: the training examples have one label only, "
            f"{labels[0]!r}; a classifier needs at least two."
        )
    config = resolve_steps(config, len(examples["train"]))
    config = override(
        config,
        {
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
            )
        },
    )
    batches, dev_batches = (
        ClassificationBatches(
            tokenizer.encode_batch([e.texts[0] for e in examples[split]]),
            label_numbers(examples[split], labels, f"{data_dir} ({split})"),
            framing_ids=tokenizer.framing_ids,
            max_seq_length=max_seq_length,
            batch_size=batch_size,
            seed=config.training.seed,
            training=split == "train",
        )
        for split, batch_size in (
            ("train", config.training.train_batch_size),
            ("dev", config.training.eval_batch_size),
        )
    )
    description = {
        "job": "finetune",
        "task": task.name,
        "config": to_dict(config),
        "model": to_dict(model_config),
        "labels": labels,
        "train_examples": _fingerprint(examples["train"]),
        "dev_examples": _fingerprint(examples["dev"]),
        "tokenizer": tokenizer.fingerprint,
        "init_from": initial.fingerprint,
    }
    with strategy.scope():
        keras.utils.set_random_seed(config.training.seed)
        model = AlbertForClassification(
            model_config,
            labels=labels,
            remat=config.training.remat,
            dtype=DTYPE_POLICIES[config.training.precision],
        )
        print(initialize(model, initial), flush=True)
        trainer = Trainer(
            model,
            classification_objective(),
            strategy=strategy,
            optimizer_config=config.optimizer,
            training_config=config.training,
        )

    def flops(step: int) -> int:
        # Of texts of the longest length; most batches are shorter.
        return training_flops(
            model_config,
            batch_size=config.training.train_batch_size,
            seq_length=max_seq_length,
            num_predictions=0,
            read_positions_only=True,
        )

    return train(
        trainer,
        Job(
            phases=Phases([batches], [config.training.num_train_steps]),
            depths=DepthSchedule("", len(sharing_plan(model_config))),
            evaluate=lambda step: evaluate_classification(
                trainer, dev_batches, config.training.max_eval_steps
            ),
            best_metric=config.training.best_metric or "accuracy",
            measures=("loss", "accuracy", "majority_class_accuracy"),
            export=lambda directory: save_model_directory(
                directory, model, tokenizer, max_seq_length=max_seq_length
            ),
            flops=flops,
            remarks=warm_up_remarks(
                config.optimizer, config.training.num_train_steps
            ),
        ),
        run_dir=run_dir,
        config=config.training,
        runtime=runtime,
        description=description,
    )
