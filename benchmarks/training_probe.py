"""A Trainer for a workload, whose memory or time is measured."""

import functools
from collections.abc import Callable

import tensorflow as tf

from albert_tf.cluster.distribution import make_strategy
from albert_tf.config import RuntimeConfig, override
from albert_tf.modeling.models import AlbertForPretraining, AlbertModel
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.training.trainer import Trainer
from albert_tf.training.training_loss import TrainingLoss, pretraining_loss
from benchmarks.workload import Workload


def make_probe(
    work: Workload,
    build_model: Callable[..., AlbertModel] = AlbertForPretraining,
    training_loss: TrainingLoss | None = None,
    strategy: tf.distribute.Strategy | None = None,
) -> Trainer:
    """Returns a Trainer for the workload; of pretraining, on one device."""
    return Trainer(
        functools.partial(build_model, work.model),
        training_loss or pretraining_loss(SENTENCE_OBJECTIVES["sop"]),
        strategy or make_strategy(RuntimeConfig()),
        work.optimizer,
        override(work.training, {"train_batch_size": work.batch_size}),
    )
