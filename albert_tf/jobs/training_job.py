"""What pretraining and fine-tuning share: one job that trains a model.

The order is always the same: read the data, resolve the configuration, build
the model and its optimizer, restore, train, report. A job's module does the
first two and describes the rest in a subclass of `TrainingJob`.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from albert_tf.config import (
    FinetuneConfig,
    ModelConfig,
    PretrainConfig,
    RuntimeConfig,
    override,
)
from albert_tf.interchange.model_directory import InitialWeights, initialize
from albert_tf.jobs.micro_batch import resolve_micro_batch
from albert_tf.jobs.workload import Workload
from albert_tf.modeling.models import AlbertModel
from albert_tf.optim.schedules import warm_up_warnings
from albert_tf.rundir.run_directory import extended
from albert_tf.text.tokenizer_base import Tokenizer
from albert_tf.training.job import Job
from albert_tf.training.loop import train
from albert_tf.training.objectives import Objective
from albert_tf.training.trainer import DTYPE_POLICIES, Trainer


@dataclasses.dataclass(frozen=True)
class Environment:
    """Where a job runs.

    Attributes:
        strategy: of its replicas.
        run_dir: which may not exist yet.
        runtime: settings that do not decide the result.
    """

    strategy: tf.distribute.Strategy
    run_dir: str
    runtime: RuntimeConfig


def resolve_for_machine(
    config: Any, environment: Environment, largest: Workload
) -> Any:
    """Returns the configuration, extended and with a micro-batch that fits.

    Args:
        config: with all that the data decides.
        environment: of the run.
        largest: a step that needs as much memory as any of the run.
    """
    config = extended(config, environment.runtime)
    micro_batch_size = resolve_micro_batch(
        config.training.micro_batch_size,
        environment.strategy,
        environment.run_dir,
        largest,
    )
    return override(config, {"micro_batch_size": micro_batch_size})


@dataclasses.dataclass(kw_only=True)
class TrainingJob(Job):
    """A job that trains a new model to its last step.

    Attributes:
        config: resolved; nothing changes it while the job runs.
        environment: where it runs.
        model_config: the architecture.
        tokenizer: the model's.
        initial: weights to start from; None: random ones.
        objective: the losses.
        log: takes a line.
        trainer: of the job's model, once `run` has built it.
    """

    config: PretrainConfig | FinetuneConfig
    environment: Environment
    model_config: ModelConfig
    tokenizer: Tokenizer
    initial: InitialWeights | None
    objective: Objective
    log: Callable[[str], None] = print
    trainer: Trainer = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.warnings += warm_up_warnings(
            self.config.optimizer, self.config.training.num_train_steps
        )

    @abc.abstractmethod
    def build_model(self, **options: Any) -> AlbertModel:
        """Returns a new model; `options` are `remat` and `dtype`."""

    @abc.abstractmethod
    def description(self) -> dict:
        """Returns everything that decides the run, as in config.json."""

    def run(self) -> dict[str, float]:
        """Trains to the last step and returns the last evaluation."""
        training = self.config.training
        with self.environment.strategy.scope():
            keras.utils.set_random_seed(training.seed)
            model = self.build_model(
                remat=training.remat, dtype=DTYPE_POLICIES[training.precision]
            )
            if self.initial:
                self.log(initialize(model, self.initial))
            self.trainer = Trainer(
                model,
                self.objective,
                strategy=self.environment.strategy,
                optimizer_config=self.config.optimizer,
                training_config=training,
            )
        return train(
            self.trainer,
            self,
            run_dir=self.environment.run_dir,
            config=training,
            runtime=self.environment.runtime,
            description=self.description(),
        )
