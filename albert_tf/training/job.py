"""A job as the training loop needs it, and the progress in checkpoints."""

import abc
import dataclasses
import functools
import math
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import tensorflow as tf

from albert_tf.cluster.distribution import make_strategy
from albert_tf.config import (
    EmbeddingConfig,
    FinetuneConfig,
    Log,
    ModelConfig,
    PretrainConfig,
    RuntimeConfig,
    lookup,
    require,
)
from albert_tf.inputs.input_pipeline import Batch
from albert_tf.inputs.source_schedule import SourceSchedule
from albert_tf.modeling.accounting import training_flops
from albert_tf.modeling.device_kernels import KERNELS
from albert_tf.modeling.models import AlbertModel
from albert_tf.modeling.weights.pretrained import StoredModel, initialize
from albert_tf.optim.optimizers import OPTIMIZERS
from albert_tf.text.tokenizer_base import Tokenizer
from albert_tf.training.depth_schedule import DepthSchedule
from albert_tf.training.trainer import Trainer
from albert_tf.training.training_loss import TrainingLoss

# The settings of a job.
AnyConfig = PretrainConfig | FinetuneConfig | EmbeddingConfig


def strategy_for(
    config: AnyConfig, runtime: RuntimeConfig
) -> tf.distribute.Strategy:
    """Returns the strategy of a job, checked before the long start.

    Raises:
        UserError: for an unknown optimizer, and devices that are not there.
    """
    name = config.optimizer.optimizer
    lookup(OPTIMIZERS, name, "optimizer", extensible=True)
    strategy = make_strategy(runtime)
    attention = config.training.attention
    if attention in KERNELS:
        device = KERNELS[attention].device
        require(
            bool(tf.config.list_logical_devices(device)),
            f"--attention={attention} is a kernel for a {device}, and "
            "TensorFlow sees none here; set --attention=auto.",
        )
    return strategy


@dataclasses.dataclass(kw_only=True)
class Job(abc.ABC):
    """The inputs of the training loop, and its callbacks.

    Attributes:
        name: of the job in config.json.
        config: resolved; nothing changes it while the job runs.
        run_dir: may not exist yet.
        initial: weights to start from; None: random ones.
        sources: training batches.
        metric_names: the keys that `evaluate` returns.
        warnings: lines for the log.
    """

    name: ClassVar[str]
    config: AnyConfig
    strategy: tf.distribute.Strategy
    run_dir: str
    runtime: RuntimeConfig
    model_config: ModelConfig
    tokenizer: Tokenizer
    initial: StoredModel | None
    training_loss: TrainingLoss
    sources: SourceSchedule
    best_metric: str
    metric_names: Collection[str]
    depths: DepthSchedule = dataclasses.field(default_factory=DepthSchedule)
    warnings: tuple[str, ...] = ()
    log: Log = print

    @functools.cached_property
    def trainer(self) -> Trainer:
        """The trainer of a new model; building it takes seconds."""

        def build(**options: Any) -> AlbertModel:
            model = self.build_model(**options)
            if self.initial:
                self.log(initialize(model, self.initial))
            return model

        trainer = Trainer(
            build,
            self.training_loss,
            self.strategy,
            self.config.optimizer,
            self.config.training,
        )
        trainer.data_timeout_secs = self.runtime.data_timeout_secs
        return trainer

    @abc.abstractmethod
    def build_model(self, **options: Any) -> AlbertModel:
        """Returns a new model; `options` are `remat`, `attention`, `dtype`."""

    @abc.abstractmethod
    def description(self) -> dict:
        """Returns everything that decides the run, as in config.json."""

    @abc.abstractmethod
    def evaluate(self, step: int) -> dict[str, float]:
        """Returns the metrics on the held-out examples after a step."""

    def held_out_digest(self, step: int) -> str:
        """Returns the digest of the examples that `evaluate` has at a step.

        Evaluations on different ones do not compare.
        """
        return ""

    @abc.abstractmethod
    def export(self, directory: str, evaluation: Mapping[str, float]) -> None:
        """Writes the model directory of a model with this evaluation.

        Only the chief calls it.
        """

    def conclude(self, step: int) -> None:
        """Adds to the run directory, after the model, that of `step`.

        All workers call it, and the trainer has the weights of the model.
        """
        return

    def flops(self, step: int, batch: Batch) -> dict[str, int]:
        """Returns the floating-point operations of a step on a batch.

        As `flops`; none where weights are frozen, whose gradients are not
        computed.
        """
        if not self.trainer.trains_all:
            return {}
        *choices, _ = batch["input_ids"].shape[1:]
        rows = self.sources.at(step).batch_size * math.prod(choices)
        widths = self.trainer.part_widths(batch)
        predictions = batch.get("masked_lm_positions")
        total = sum(
            training_flops(
                self.model_config,
                batch_size=rows // len(widths),
                seq_length=width,
                num_predictions=0
                if predictions is None
                else predictions.shape[1],
                read_positions_only=self.trainer.model.reads_positions_only(),
                num_applications=self.depths.at(step),
            )
            for width in widths
        )
        return {"flops": total}

    def samples(self, step: int) -> str:
        """Returns predictions after a step in Markdown; empty: none."""
        return ""

    def figures(self) -> Mapping[str, bytes]:
        """Returns PNG files of the last evaluation, by name."""
        return {}


@dataclasses.dataclass
class Progress:
    """The state of a run that a checkpoint holds beside the variables.

    Attributes:
        passed_over: batches that roll-backs have left out.
        roll_backs: since the last checkpoint.
        window: sums since the last logged step.
        losses: of the last steps, for the detection of spikes.
        skipped_steps: steps without an update.
        skipped_in_a_row: the latest of them without one in between.
        records_crc32: of the numbers of all records consumed.
        best: the `step` of the best evaluation; empty before any.
        best_evaluation: all of its metrics.
        without_better: evaluations since then.
        finished: whether the run has ended, early perhaps.
        log: `Monitor.written`; empty in older checkpoints.
    """

    passed_over: int = 0
    roll_backs: int = 0
    window: dict[str, float] = dataclasses.field(default_factory=dict)
    losses: list[float] = dataclasses.field(default_factory=list)
    skipped_steps: int = 0
    skipped_in_a_row: int = 0
    records_crc32: int = 0
    evaluation: dict[str, float] = dataclasses.field(default_factory=dict)
    best: dict[str, float] = dataclasses.field(default_factory=dict)
    best_evaluation: dict[str, float] = dataclasses.field(default_factory=dict)
    without_better: int = 0
    finished: bool = False
    log: dict[str, int] = dataclasses.field(default_factory=dict)


def is_loss(name: str) -> bool:
    """Returns whether a metric is a loss, of any split."""
    return "loss" in name.split("_")
