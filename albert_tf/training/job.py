"""A job's hooks for the training loop, and the progress in checkpoints."""

import dataclasses
from collections.abc import Callable, Collection, Mapping

from albert_tf.inputs.input_pipeline import Batch
from albert_tf.inputs.phases import DepthSchedule, Phases

# Words in the names of metrics.
_LOWER_IS_BETTER = {"loss", "perplexity", "error"}


@dataclasses.dataclass(frozen=True)
class Job:
    """The data and callbacks of a job.

    Attributes:
        phases: its batches.
        depths: the number of layers applied at each step.
        evaluate: (step) -> metrics of the held-out examples.
        best_metric: the metric that selects the best model.
        metric_names: the keys that `evaluate` returns.
        export: (directory, metrics) -> None; writes a model directory.
        flops: (step, batch) -> floating-point operations of that step.
        samples: () -> Markdown that shows predictions.
        figures: () -> PNG files by name, of the last evaluation.
        warnings: lines for the log.
    """

    phases: Phases
    depths: DepthSchedule
    evaluate: Callable[[int], dict[str, float]]
    best_metric: str
    metric_names: Collection[str]
    export: Callable[[str, Mapping[str, float]], None]
    flops: Callable[[int, Batch], int]
    samples: Callable[[], str] | None = None
    figures: Callable[[], Mapping[str, bytes]] | None = None
    warnings: tuple[str, ...] = ()


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
