"""How fast a run goes."""

import time
from collections import Counter

# What a rate is called, by what is counted.
_RATES = {
    "sequences": "sequences_per_second",
    "tokens": "tokens_per_second",
    "flops": "flops_per_second",
}


class Speed:
    """Rates over the time since they were last asked for."""

    def __init__(self, start_step: int, ceiling: float | None = None) -> None:
        """Starts the clock.

        Args:
            start_step: updates already made.
            ceiling: floating-point operations per second that the devices
                manage at best; None: unknown.
        """
        self._start_step = start_step
        self._began = time.monotonic()
        self._ceiling = ceiling
        self.restart()

    def restart(self) -> None:
        """Leaves out what passed since: an evaluation is no training."""
        self._last = time.monotonic()
        self._done: Counter[str] = Counter()
        self._waited = 0.0

    def add(self, **done: float) -> None:
        """Counts work done: `sequences`, `tokens`, `flops`."""
        self._done.update(done)

    def wait(self, seconds: float) -> None:
        """Counts time in which data were waited for."""
        self._waited += seconds

    def rates(self) -> dict[str, float]:
        """Returns the rates since the last call or restart, by name.

        One per second of everything counted, share_of_ceiling where the
        ceiling is known, and data_wait_share.
        """
        seconds = max(time.monotonic() - self._last, 1e-9)
        rates = {
            rate: self._done[what] / seconds
            for what, rate in _RATES.items()
            if what in self._done
        }
        if self._ceiling and "flops" in self._done:
            rates["share_of_ceiling"] = (
                rates["flops_per_second"] / self._ceiling
            )
        rates["data_wait_share"] = self._waited / seconds
        self.restart()
        return rates

    def seconds_left(self, step: int, num_steps: int) -> float | None:
        """Returns how long the rest takes at the pace of this process.

        Evaluations and checkpoints are part of that pace. None before there
        is one.
        """
        steps = step - self._start_step
        if steps <= 0:
            return None
        pace = (time.monotonic() - self._began) / steps
        return pace * max(num_steps - step, 0)
