"""What a run shows: progress, TensorBoard, and lines of JSON."""

import itertools
import json
import math
import os
import statistics
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.rundir.append_log import AppendLog
from albert_tf.rundir.comparison import Comparison
from albert_tf.rundir.event_file import TRUST_RATIO, EventFile
from albert_tf.rundir.progress import Progress
from albert_tf.rundir.run_results import METRICS_FILE, json_measures
from albert_tf.rundir.speed import Speed

# Scalars that a clock decides, and what happened.
TIMING_FILE = "timing.jsonl"
EVENTS_FILE = "events.jsonl"


class Monitor:
    """The log of a run.

    Writes `metrics.jsonl` and `timing.jsonl` (one object per line: `step`,
    `split`, the scalars) and TensorBoard events under `tensorboard/train` and
    `tensorboard/eval`. On a terminal it shows a bar; elsewhere plain lines.
    A log that cannot be written does not stop the run (see AppendLog).
    """

    def __init__(
        self,
        run_dir: str,
        *,
        num_steps: int,
        start_step: int,
        written: Mapping[str, int] | None = None,
        ceiling: float | None = None,
        writes: bool = True,
    ) -> None:
        """Opens the log, cut back to `start_step` where a run is resumed.

        Damaged lines are removed. What is missing of the lines up to
        `start_step` is reported.

        Args:
            run_dir: the run directory.
            num_steps: updates of the whole run.
            start_step: updates already made.
            written: `written()` at that step, where it is known.
            ceiling: floating-point operations per second that the devices
                manage at best, for share_of_ceiling.
            writes: whether this process has the log of the run; others of its
                processes write and say nothing.

        Raises:
            UserError: when the log of an earlier process cannot be cut back.
        """
        self._run_dir = run_dir
        self._start_step = start_step
        self._num_steps = num_steps
        self._writes = writes
        self.lines_cut = 0
        self._progress = Progress(
            num_steps=num_steps, start_step=start_step, silent=not writes
        )
        self._speed = Speed(ceiling)
        self._step = start_step
        self._comparison: Comparison | None = None
        self._events: dict[str, EventFile] = {}
        self._lines: dict[str, AppendLog] = {}
        self._written = {"lines": 0, "crc32": 0}
        if writes:
            self._repair(written)

    def _repair(self, written: Mapping[str, int] | None) -> None:
        """Cuts the log back to the first step, without damaged lines."""
        path = os.path.join(self._run_dir, METRICS_FILE)
        lines, self.lines_cut = _repaired(path, self._start_step)
        for line in lines:
            self._count(line)
        if written and written != self._written:
            self.say(_damage(path, lines, written, self._start_step))
        _repaired(os.path.join(self._run_dir, TIMING_FILE), self._start_step)
        _repaired(os.path.join(self._run_dir, EVENTS_FILE), math.inf)

    def written(self) -> dict[str, int]:
        """Returns `lines` and `crc32` of all of metrics.jsonl.

        A checkpoint keeps it, so that a damaged log is noticed.
        """
        return dict(self._written)

    def advance(
        self, steps: int = 1, *, loss: float | None = None, **done: float
    ) -> None:
        """Takes in updates that were made.

        Args:
            steps: how many.
            loss: of the last one, for the bar.
            **done: `sequences`, `tokens`, `flops`, for the rates.
        """
        self._step += steps
        self._speed.add(steps, **done)
        self._progress.advance(steps, loss, self._seconds_left())

    def waited(self, seconds: float) -> None:
        """Takes in time in which data were waited for."""
        self._speed.wait(seconds)

    def log(
        self,
        step: int,
        values: Mapping[str, float],
        trust_ratios: Mapping[str, float],
    ) -> None:
        """Writes what training computed since the last time, and its rates.

        Args:
            step: updates made.
            values: scalars.
            trust_ratios: by variable, as many as there are: not for the
                screen.
        """
        values = {**values, **summarize_trust_ratios(trust_ratios)}
        rates = self._speed.rates()
        details = {TRUST_RATIO + path: r for path, r in trust_ratios.items()}
        self._line(METRICS_FILE, step, "train", {**values, **details})
        self._line(
            TIMING_FILE, step, "train", {**rates, "unix_time": time.time()}
        )
        self.details("train", step, {**values, **details, **rates})
        self._progress.show_training(
            step, {**values, **rates}, self._seconds_left()
        )

    def scalars(
        self, split: str, step: int, values: Mapping[str, float]
    ) -> None:
        """Writes scalars that are no training, whose time no rate counts.

        metrics.jsonl holds what the run computes and no clock times, so that
        an interrupted run ends with the lines of an uninterrupted one.
        """
        self._line(METRICS_FILE, step, split, values)
        self.details(split, step, values)
        if self._comparison:
            for summary in self._comparison.begin(split, values):
                self._event_file("").summary(step, summary)
        self._progress.show(split, step, values)
        self._speed.restart()

    def restart_clock(self) -> None:
        """Keeps the time since the last log out of the rates."""
        self._speed.restart()

    def event(self, event: Mapping[str, object]) -> None:
        """Writes a line to events.jsonl, which is never cut back."""
        self._json(EVENTS_FILE, event)

    def details(
        self, split: str, step: int, values: Mapping[str, float]
    ) -> None:
        """Writes scalars to TensorBoard alone."""
        if self._writes:
            self._event_file(split).scalars(step, values)

    def text(
        self, name: str, text: str, *, split: str = "train", step: int = 0
    ) -> None:
        """Writes a text in Markdown to TensorBoard."""
        if self._writes:
            self._event_file(split).text(step, name, text)

    def image(self, name: str, png: bytes, *, split: str, step: int) -> None:
        """Writes a picture to TensorBoard."""
        if self._writes:
            # Width and height stand at fixed places of a PNG.
            size = struct.unpack(">II", png[16:24])
            self._event_file(split).image(step, name, png, size)

    def compare(self, description: Mapping[str, Any]) -> None:
        """Lets TensorBoard set runs side by side (HParams).

        The measures of the first evaluation are what runs are compared by.

        Args:
            description: of the run, as its config.json has it.
        """
        if self._writes:
            self._comparison = Comparison(description)

    def say(self, line: str) -> None:
        """Prints a line without breaking the bar."""
        self._progress.say(line)

    def flush(self) -> None:
        """Brings everything to disk, as a checkpoint is about to."""
        for log in (*self._lines.values(), *self._events.values()):
            log.sync()

    def close(self) -> None:
        """Closes files and bar."""
        for log in (*self._lines.values(), *self._events.values()):
            log.close()
        self._progress.close()

    def _seconds_left(self) -> float | None:
        return self._speed.seconds_left(self._num_steps - self._step)

    def _line(
        self, file: str, step: int, split: str, values: Mapping[str, float]
    ) -> None:
        self._json(
            file, {"step": step, "split": split, **json_measures(values)}
        )

    def _json(self, file: str, line: Mapping[str, object]) -> None:
        if not self._writes:
            return
        if file not in self._lines:
            self._lines[file] = AppendLog(
                os.path.join(self._run_dir, file), self.say
            )
        entry = json.dumps(line, allow_nan=False).encode() + b"\n"
        self._lines[file].append(entry)
        if file == METRICS_FILE:
            self._count(entry)

    def _count(self, entry: bytes) -> None:
        """Takes a line of metrics.jsonl into `written`."""
        self._written["lines"] += 1
        self._written["crc32"] = zlib.crc32(entry, self._written["crc32"])

    def _event_file(self, split: str) -> EventFile:
        if split not in self._events:
            self._events[split] = EventFile(
                os.path.join(self._run_dir, "tensorboard", split),
                self._start_step,
                self.say,
            )
        return self._events[split]


def _repaired(path: str, step: float) -> tuple[list[bytes], int]:
    """Removes from a log what is damaged or of later steps than `step`.

    Returns:
        The lines that are left, and how many were removed.
    """
    try:
        if not files.exists(path):
            return [], 0
        with files.open(path) as file:
            content = file.read()
        found = [line for line in content.split(b"\n") if line]
        kept = [line + b"\n" for line in found if _step(line) <= step]
        if b"".join(kept) != content:
            with files.replacing(path) as file:
                file.write(b"".join(kept))
    except OSError as error:
        raise UserError(
            f"{path} cannot be cut back to step {step}: {error.strerror}."
        ) from None
    return kept, len(found) - len(kept)


def _step(line: bytes) -> float:
    """Returns the step of a line of a log; NaN of a damaged line."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, TypeError, KeyError):
        # The last line of a run that was killed while it was written.
        return math.nan


def _damage(
    path: str, lines: Sequence[bytes], written: Mapping[str, int], step: int
) -> str:
    """Returns a warning of a log that is not as it was at a step."""
    steps = sorted({0.0, *map(_step, lines), float(step)}, reverse=True)
    # Of several the last one: where a file is cut.
    end, begin = max(
        itertools.pairwise(steps), key=lambda span: span[0] - span[1]
    )
    return (
        f"WARNING: {path} is not as this run left it at step {step}: it has "
        f"{len(lines)} of {written['lines']} lines; the longest stretch "
        f"without one is from step {begin:.0f} to {end:.0f}. The run goes on, "
        "and its log stays incomplete."
    )


def summarize_trust_ratios(ratios: dict[str, float]) -> dict[str, float]:
    """Returns `trust_ratio_min`, `_median` and `_max`; nothing of nothing."""
    if not ratios:
        return {}
    return {
        "trust_ratio_min": min(ratios.values()),
        "trust_ratio_median": statistics.median(ratios.values()),
        "trust_ratio_max": max(ratios.values()),
    }
