"""A run on the screen: a bar on a terminal, plain lines in a log."""

import contextlib
import datetime
import sys
from collections.abc import Mapping

from tqdm import tqdm

# The bar's own rate and estimate would forget evaluations.
_BAR = "step {n_fmt}/{total_fmt} |{bar}|{postfix}"
# How the names end of what a line of training shows; TensorBoard has it all.
_ON_SCREEN = (
    "loss",
    "accuracy",
    "learning_rate",
    "gradient_norm",
    "sequences_per_second",
)


class Progress:
    """Shows steps, scalars and what else is said."""

    def __init__(
        self, *, num_steps: int, start_step: int, silent: bool = False
    ) -> None:
        """Shows the bar, if there is a terminal.

        Args:
            num_steps: updates of the whole run.
            start_step: updates already made.
            silent: whether nothing is ever shown.
        """
        self._num_steps = num_steps
        self._silent = silent
        self._beside = {"loss": "", "rate": "", "left": ""}
        self._bar = tqdm(
            total=num_steps,
            initial=start_step,
            bar_format=_BAR,
            dynamic_ncols=True,
            disable=silent or not sys.stderr.isatty(),
        )

    def advance(
        self, steps: int, loss: float | None, seconds_left: float | None
    ) -> None:
        """Moves the bar on; beside it stand loss, rate and time left."""
        if loss is not None:
            self._beside["loss"] = f"loss {loss:.4g}"
        if seconds_left is not None:
            self._beside["left"] = f"{_duration(seconds_left)} left"
        self._bar.set_postfix_str(
            "  ".join(filter(None, self._beside.values())), refresh=False
        )
        self._bar.update(steps)

    def show_training(
        self,
        step: int,
        values: Mapping[str, float],
        seconds_left: float | None,
    ) -> None:
        """Prints the scalars that one watches, and the time left."""
        if "sequences_per_second" in values:
            rate = values["sequences_per_second"]
            self._beside["rate"] = f"{rate:.4g} sequences/s"
        left = []
        if seconds_left is not None:
            left.append(f"time_left {_duration(seconds_left)}")
        watched = {n: v for n, v in values.items() if n.endswith(_ON_SCREEN)}
        self._print("train", step, [*_texts(watched), *left])

    def show(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Prints scalars."""
        self._print(split, step, _texts(values))

    def _print(self, split: str, step: int, texts: list[str]) -> None:
        self.say(f"step {step}/{self._num_steps}  {split}  {'  '.join(texts)}")

    def say(self, line: str) -> None:
        """Prints a line without breaking the bar."""
        if self._silent:
            return
        # A log on a full disk, a pipe without a reader: nobody is left to be
        # told, and the run goes on.
        with contextlib.suppress(OSError):
            if self._bar.disable:
                print(line, flush=True)
            else:
                self._bar.write(line)

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._bar.close()


def _texts(values: Mapping[str, float]) -> list[str]:
    return [f"{name} {value:.4g}" for name, value in values.items()]


def _duration(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))
