"""What a job hands to the outer loop, and where and how well its run stands."""

import dataclasses
from collections.abc import Callable, Collection, Mapping

from albert_tf.inputs.input_pipeline import Batch
from albert_tf.inputs.phases import DepthSchedule, Phases

# Words in the names of measures.
_LOWER_IS_BETTER = {"loss", "perplexity", "error"}


@dataclasses.dataclass(frozen=True)
class Job:
    """What a job hands to the loop.

    Attributes:
        phases: its batches.
        depths: how many layers are applied.
        evaluate: (step) -> measures of the held-out examples.
        best_metric: the measure that says which model is best.
        measures: the names of what `evaluate` gives.
        export: writes a model directory at a path, of a model that was
            evaluated so.
        flops: (step, its batch) -> floating point operations of that step.
        samples: () -> text that shows what the model does, or None.
        pictures: () -> PNG files by their names, of the last evaluation.
        remarks: lines for the reader of the log.
    """

    phases: Phases
    depths: DepthSchedule
    evaluate: Callable[[int], dict[str, float]]
    best_metric: str
    measures: Collection[str]
    export: Callable[[str, Mapping[str, float]], None]
    flops: Callable[[int, Batch], int]
    samples: Callable[[], str] | None = None
    pictures: Callable[[], Mapping[str, bytes]] | None = None
    remarks: tuple[str, ...] = ()


@dataclasses.dataclass
class Progress:
    """Where a run is; what a checkpoint holds beside the variables.

    Attributes:
        passed_over: batches that roll-backs have left out.
        roll_backs: since the last evaluation that was finite.
        window: sums since the last line of the log.
        losses: of the last steps, where spikes are watched for.
        skipped_steps: that changed nothing.
        skipped_in_a_row: those just now.
        records_crc32: of the numbers of all records consumed.
        evaluation: the last one.
        best: `step` and `value` of the best one.
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
    """Returns whether a measure's value is better than another.

    Losses, perplexities and errors are better when lower, all others when
    higher.
    """
    if _LOWER_IS_BETTER & set(metric.split("_")):
        return value < than
    return value > than


def is_loss(name: str) -> bool:
    """Returns whether a measure is a loss, of whichever split."""
    return "loss" in name.split("_")
