"""Statistics over the steps of a run, in double precision."""

import math
import statistics
from collections.abc import Mapping, Sequence

_SPIKE_WINDOW = 128
# The standard deviation of fewer losses is not reliable.
_MIN_LOSSES = 32


class RunningMeans:
    """Weighted sums and weights over steps, divided on request.

    They are Python floats: a float32 total stops growing in a long run. `sums`
    has them as `sum:<name>` and `weight:<name>`, as checkpoints do.
    """

    def __init__(self, sums: Mapping[str, float] | None = None) -> None:
        self.sums = dict(sums or {})

    def add(self, sums: Mapping[str, tuple[float, float]]) -> None:
        """Adds the (weighted sum, weight) of each name in one step."""
        for name, pair in sums.items():
            for kind, value in zip(("sum", "weight"), pair, strict=True):
                total = self.sums.get(f"{kind}:{name}", 0.0)
                self.sums[f"{kind}:{name}"] = total + float(value)

    def means(self) -> dict[str, float]:
        """Returns the mean of every name; NaN where the weight is 0."""
        means = {}
        for key, total in self.sums.items():
            kind, _, name = key.partition(":")
            if kind == "sum":
                weight = self.sums[f"weight:{name}"]
                means[name] = total / weight if weight else math.nan
        return means


class SpikeDetector:
    """A limit for the loss, from the mean and deviation of the last 128."""

    def __init__(
        self, max_deviations: float, losses: Sequence[float] = ()
    ) -> None:
        """Starts from the losses of a restored run; 0 deviations: no limit."""
        self._max_deviations = max_deviations
        self.losses = list(losses)

    def limit(self) -> float:
        """Returns the largest loss that is no spike, perhaps infinity."""
        if not self._max_deviations or len(self.losses) < _MIN_LOSSES:
            return math.inf
        mean = statistics.fmean(self.losses)
        deviation = statistics.pstdev(self.losses, mean)
        return mean + self._max_deviations * deviation

    def add(self, loss: float) -> None:
        """Adds the loss of a step that was not skipped."""
        if self._max_deviations:
            self.losses = [*self.losses, loss][-_SPIKE_WINDOW:]
