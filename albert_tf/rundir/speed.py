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

    def __init__(self, ceiling: float | None = None) -> None:
        """Waits for the first update, which compiles and is not timed.

        Args:
            ceiling: floating-point operations per second that the devices
                manage at best; None: unknown.
        """
        self._ceiling = ceiling
        self._began: float | None = None
        self._num_steps = 0
        self.restart()

    def restart(self) -> None:
        """Leaves out what passed since: an evaluation is no training."""
        self._last = time.monotonic()
        self._done: Counter[str] = Counter()
        self._waited = 0.0

    def add(self, num_steps: int, **done: float) -> None:
        """Counts updates and their work: `sequences`, `tokens`, `flops`."""
        if self._began is None:
            self._began = time.monotonic()
            self.restart()
            return
        self._num_steps += num_steps
        self._done.update(done)

    def wait(self, seconds: float) -> None:
        """Counts time in which data were waited for."""
        self._waited += seconds

    def rates(self) -> dict[str, float]:
        """Returns the rates since the last call or restart, by name.

        One per second of everything counted, share_of_ceiling where the
        ceiling is known, and data_wait_share. Nothing where no time passed
        that counts.
        """
        done, waited = self._done, self._waited
        seconds = time.monotonic() - self._last
        self.restart()
        if not done or seconds <= 0:
            return {}
        rates = {
            rate: done[what] / seconds
            for what, rate in _RATES.items()
            if what in done
        }
        if self._ceiling and "flops" in done:
            rates["share_of_ceiling"] = done["flops"] / seconds / self._ceiling
        return {**rates, "data_wait_share": waited / seconds}

    def seconds_left(self, num_steps: int) -> float | None:
        """Returns how long further steps take at the pace until now.

        Evaluations and checkpoints are part of that pace. None before there
        is one.
        """
        if not self._num_steps:
            return None
        pace = (time.monotonic() - self._began) / self._num_steps
        return pace * max(num_steps, 0)
