"""A Trainer for a workload, whose memory or time is measured."""

import functools
from collections.abc import Callable

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
) -> Trainer:
    """Returns a Trainer for the workload on one device; of pretraining."""
    return Trainer(
        functools.partial(build_model, work.model),
        training_loss or pretraining_loss(SENTENCE_OBJECTIVES["sop"]),
        make_strategy(RuntimeConfig()),
        work.optimizer,
        override(work.training, {"train_batch_size": work.batch_size}),
    )
