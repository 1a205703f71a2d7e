"""A probe of training: a few steps of a model on random tokens.

`micro_batch_size=auto` measures their memory; the benchmark measures the same
work beside other libraries.
"""

from collections.abc import Mapping

import keras
import numpy as np

from albert_tf.cluster.distribution import make_strategy
from albert_tf.cluster.memory import peak_resident
from albert_tf.config import RuntimeConfig, override
from albert_tf.jobs.workload import Workload, random_batch
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.training.objectives import pretraining_objective
from albert_tf.training.trainer import DTYPE_POLICIES, Trainer

# Steps whose peak memory is measured.
PROBE_STEPS = 3


def probe_batch(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a batch for a Trainer: with `example_numbers`."""
    rows = len(batch["input_ids"])
    return {**batch, "example_numbers": np.arange(rows, dtype=np.int32)}


def make_probe(work: Workload) -> Trainer:
    """Returns a Trainer of pretraining for the workload, on one device."""
    training = override(work.training, {"train_batch_size": work.batch_size})
    strategy = make_strategy(RuntimeConfig())
    with strategy.scope():
        keras.utils.set_random_seed(training.seed)
        model = AlbertForPretraining(
            work.model,
            remat=training.remat,
            dtype=DTYPE_POLICIES[training.precision],
        )
        return Trainer(
            model,
            pretraining_objective(SENTENCE_OBJECTIVES["sop"]),
            strategy=strategy,
            optimizer_config=work.optimizer,
            training_config=training,
        )


def peak_of_training(work: Workload) -> int:
    """Returns the peak resident memory of a few training steps, in bytes.

    Call in a process of its own: all of its memory counts, libraries too.
    """
    trainer, batch = make_probe(work), probe_batch(random_batch(work))
    for _ in range(PROBE_STEPS):
        trainer.train_step(batch)
    return peak_resident()
