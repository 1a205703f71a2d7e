"""When a loss counts as a spike."""

import math
import statistics
from collections.abc import Sequence

_WINDOW = 128
# Of fewer losses the spread says little.
_LEAST = 32


class LossWatch:
    """The last 128 losses, and how far above them is too far.

    Attributes:
        losses: of the last steps that were not skipped.
    """

    def __init__(
        self, max_deviations: float, losses: Sequence[float] = ()
    ) -> None:
        """Takes up a run's losses.

        Args:
            max_deviations: standard deviations above the mean; 0: any.
            losses: of a restored run.
        """
        self._max_deviations = max_deviations
        self.losses = list(losses)

    def limit(self) -> float:
        """Returns the largest loss that is no spike; infinity: any."""
        if not self._max_deviations or len(self.losses) < _LEAST:
            return math.inf
        mean = statistics.fmean(self.losses)
        deviation = statistics.pstdev(self.losses, mean)
        return mean + self._max_deviations * deviation

    def add(self, loss: float) -> None:
        """Takes in the loss of a step."""
        if self._max_deviations:
            self.losses = [*self.losses, loss][-_WINDOW:]
