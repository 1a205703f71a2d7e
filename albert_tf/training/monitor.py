"""What a run shows: progress, TensorBoard, metrics.jsonl."""

import json
import math
import os
import sys
import time

import tensorflow as tf
from tqdm import tqdm


class Monitor:
    """The log of a run.

    Writes `metrics.jsonl` (one object per line: `step`, `split`, the
    scalars) and TensorBoard events under `tensorboard/train` and
    `tensorboard/eval`. On a terminal it shows a bar; elsewhere plain lines.
    """

    def __init__(
        self, run_dir: str, *, num_steps: int, start_step: int, batch_size: int
    ) -> None:
        """Opens the log, cut back to `start_step` where a run is resumed.

        Args:
            run_dir: the run directory.
            num_steps: updates of the whole run.
            start_step: updates already made.
            batch_size: sequences per step, for the rate.
        """
        self._path = os.path.join(run_dir, "metrics.jsonl")
        _keep_until(self._path, start_step)
        self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115
        self._tensorboard = os.path.join(run_dir, "tensorboard")
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._batch_size = batch_size
        self._num_steps = num_steps
        self._last = (time.monotonic(), start_step)
        self._bar = tqdm(
            total=num_steps,
            initial=start_step,
            unit="step",
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
        )

    def advance(self) -> None:
        """Moves the bar on by one step."""
        self._bar.update(1)

    def rate(self, step: int) -> float:
        """Returns sequences per second since the last call."""
        now = time.monotonic()
        before, last_step = self._last
        self._last = (now, step)
        return (step - last_step) * self._batch_size / max(now - before, 1e-9)

    def scalars(
        self, split: str, step: int, values: dict[str, float], **shown: float
    ) -> None:
        """Writes scalars; `shown` go to TensorBoard and the screen only.

        metrics.jsonl holds what the run computes and no clock times, so that
        an interrupted run ends with the lines of an uninterrupted one.
        """
        line = {"step": step, "split": split}
        for name, value in values.items():
            # JSON has no NaN and no infinity.
            line[name] = value if math.isfinite(value) else None
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        self.details(split, step, {**values, **shown})
        text = "  ".join(
            f"{name} {value:.4g}" for name, value in {**values, **shown}.items()
        )
        self.say(f"step {step}/{self._num_steps}  {split}  {text}")

    def details(self, split: str, step: int, values: dict[str, float]) -> None:
        """Writes scalars to TensorBoard alone: there may be hundreds."""
        with self._writer(split).as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def text(self, name: str, text: str) -> None:
        """Writes a text to TensorBoard."""
        with self._writer("train").as_default(step=0):
            tf.summary.text(name, text)

    def _writer(self, split: str) -> tf.summary.SummaryWriter:
        if split not in self._writers:
            self._writers[split] = tf.summary.create_file_writer(
                os.path.join(self._tensorboard, split)
            )
        return self._writers[split]

    def say(self, line: str) -> None:
        """Prints a line without breaking the bar."""
        if self._bar.disable:
            print(line, flush=True)
        else:
            self._bar.write(line)

    def flush(self) -> None:
        """Brings everything to disk, as a checkpoint is about to."""
        self._file.flush()
        os.fsync(self._file.fileno())
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Closes files and bar."""
        self.flush()
        for writer in self._writers.values():
            writer.close()
        self._file.close()
        self._bar.close()


def _keep_until(path: str, step: int) -> None:
    """Cuts a log back to the lines of steps up to `step`."""
    if not os.path.exists(path):
        return
    kept = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line)
            except ValueError:
                # The last line of a run that was killed while writing it.
                break
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.writelines(kept)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
