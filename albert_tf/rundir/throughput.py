"""The throughput of a run."""

import time
from collections import Counter


class Throughput:
    """Rates over the time since they were last read."""

    def __init__(self, peak_flops: float | None = None) -> None:
        """Waits for `begin`, after the call that compiles, to measure time.

        `peak_flops` is the FLOP/s of the devices in a matrix product.
        """
        self._peak_flops = peak_flops
        self._began: float | None = None
        self._num_steps = 0
        self.restart()

    def restart(self) -> None:
        """Excludes the time since the last reading, as of an evaluation."""
        self._last = time.monotonic()
        self._done: Counter[str] = Counter()
        self._waited = 0.0

    def begin(self) -> None:
        """Begins to measure, if it has not begun."""
        if self._began is None:
            self._began = time.monotonic()
            self.restart()

    def add(self, **done: float) -> None:
        """Counts an update and its work: `sequences`, `tokens`, `flops`."""
        if self._began is None:
            return
        self._num_steps += 1
        self._done.update(done)

    def wait(self, seconds: float) -> None:
        """Counts time spent waiting for data."""
        self._waited += seconds

    def rates(self) -> dict[str, float]:
        """Returns the rates since the last call or restart, by name.

        `<work>_per_second`, share_of_ceiling (of the peak FLOP/s, where known)
        and data_wait_share; nothing where no time has passed.
        """
        done, waited = self._done, self._waited
        seconds = time.monotonic() - self._last
        self.restart()
        if not done or seconds <= 0:
            return {}
        rates = {f"{name}_per_second": n / seconds for name, n in done.items()}
        if self._peak_flops and "flops" in done:
            share = rates["flops_per_second"] / self._peak_flops
            rates["share_of_ceiling"] = share
        return {**rates, "data_wait_share": waited / seconds}

    def seconds_left(self, num_steps: int) -> float | None:
        """Returns the time of further steps at the pace so far, if known.

        Evaluations and checkpoints are part of that pace.
        """
        if not self._num_steps or self._began is None:
            return None
        pace = (time.monotonic() - self._began) / self._num_steps
        return pace * max(num_steps, 0)
