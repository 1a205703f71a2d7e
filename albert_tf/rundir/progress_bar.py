"""Console output of a run: a bar on a terminal, plain lines elsewhere."""

import contextlib
import datetime
import sys
from collections.abc import Mapping

from tqdm import tqdm

# The format leaves out tqdm's own rate and estimate, which ignore evaluations.
_BAR = "step {n_fmt}/{total_fmt} |{bar}|{postfix}"
# Ends of the names of the training scalars that are printed.
_PRINTED = (
    "loss",
    "accuracy",
    "learning_rate",
    "gradient_norm",
    "sequences_per_second",
)


class ProgressBar:
    """Shows steps, scalars and log lines."""

    def __init__(
        self, *, num_steps: int, start_step: int, silent: bool = False
    ) -> None:
        self._num_steps = num_steps
        self._silent = silent
        self._postfix = {"loss": "", "rate": "", "left": ""}
        self._bar = tqdm(
            total=num_steps,
            initial=start_step,
            bar_format=_BAR,
            dynamic_ncols=True,
            disable=silent or not sys.stderr.isatty(),
        )
        self.close = self._bar.close

    def advance(self, loss: float, seconds_left: float | None) -> None:
        """Moves the bar on, with loss, rate and time left beside it."""
        self._postfix["loss"] = f"loss {loss:.4g}"
        if seconds_left is not None:
            self._postfix["left"] = f"{_duration(seconds_left)} left"
        self._bar.set_postfix_str(
            "  ".join(filter(None, self._postfix.values())), refresh=False
        )
        # A closed terminal must not end the run.
        with contextlib.suppress(OSError):
            self._bar.update()

    def show_training(
        self,
        step: int,
        values: Mapping[str, float],
        seconds_left: float | None,
    ) -> None:
        """Prints the main scalars and the time left."""
        if "sequences_per_second" in values:
            rate = values["sequences_per_second"]
            self._postfix["rate"] = f"{rate:.4g} sequences/s"
        printed = {n: v for n, v in values.items() if n.endswith(_PRINTED)}
        left = ""
        if seconds_left is not None:
            left = f"  time_left {_duration(seconds_left)}"
        self.show("train", step, printed, left)

    def show(
        self, split: str, step: int, values: Mapping[str, float], end: str = ""
    ) -> None:
        """Prints scalars, and a text after them."""
        text = "  ".join(f"{name} {v:.4g}" for name, v in values.items())
        self.print(f"step {step}/{self._num_steps}  {split}  {text}{end}")

    def print(self, line: str) -> None:
        """Prints a line without breaking the bar."""
        if self._silent:
            return
        # Nor a log on a full disk or a closed pipe.
        with contextlib.suppress(OSError):
            if self._bar.disable:
                print(line, flush=True)
            else:
                self._bar.write(line)


def _duration(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))
