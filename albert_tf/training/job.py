"""A job's hooks for the training loop, and the progress in checkpoints."""

import abc
import dataclasses
from collections.abc import Collection, Mapping

from albert_tf.inputs.input_pipeline import Batch
from albert_tf.inputs.phases import DepthSchedule, Phases

# Words in the names of metrics.
_LOWER_IS_BETTER = {"loss", "perplexity", "error"}


@dataclasses.dataclass(kw_only=True)
class Job(abc.ABC):
    """The data of a job, and its callbacks.

    Attributes:
        phases: its batches.
        depths: the number of layers applied at each step.
        best_metric: the metric that selects the best model.
        metric_names: the keys that `evaluate` returns.
        warnings: lines for the log.
    """

    phases: Phases
    depths: DepthSchedule
    best_metric: str
    metric_names: Collection[str]
    warnings: tuple[str, ...] = ()

    @abc.abstractmethod
    def evaluate(self, step: int) -> dict[str, float]:
        """Returns the metrics on the held-out examples after a step."""

    @abc.abstractmethod
    def export(self, directory: str, evaluation: Mapping[str, float]) -> None:
        """Writes the model directory of a model with this evaluation."""

    @abc.abstractmethod
    def flops(self, step: int, batch: Batch) -> int:
        """Returns the floating-point operations of a step."""

    def samples(self) -> str:
        """Returns sample predictions in Markdown; empty: none."""
        return ""

    def figures(self) -> Mapping[str, bytes]:
        """Returns PNG files of the last evaluation, by name."""
        return {}


@dataclasses.dataclass
class Progress:
    """The state of a run that a checkpoint holds beside the variables.

    Attributes:
        passed_over: batches that roll-backs have left out.
        roll_backs: since the last finite evaluation.
        window: sums since the last logged step.
        losses: of the last steps, for the detection of spikes.
        skipped_steps: steps without an update.
        skipped_in_a_row: the latest of them without one in between.
        records_crc32: of the numbers of all records consumed.
        evaluation: metrics of the last evaluation.
        best: `step` and `value` of the best evaluation.
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
    without_better: int = 0
    finished: bool = False
    log: dict[str, int] = dataclasses.field(default_factory=dict)


def is_better(metric: str, value: float, than: float) -> bool:
    """Returns whether a value of a metric is better than another.

    Losses, perplexities and errors are better when lower, all others when
    higher.
    """
    if _LOWER_IS_BETTER & set(metric.split("_")):
        return value < than
    return value > than


def is_loss(name: str) -> bool:
    """Returns whether a metric is a loss, of whichever split."""
    return "loss" in name.split("_")
