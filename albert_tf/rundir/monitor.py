"""The logs of a run: console, TensorBoard and lines of JSON."""

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
from albert_tf.rundir.event_file import (
    TRUST_RATIO,
    EventFile,
    hparams_summaries,
)
from albert_tf.rundir.progress_bar import ProgressBar
from albert_tf.rundir.run_results import METRICS_FILE, TIMING_FILE, json_metrics
from albert_tf.rundir.throughput import Throughput

# Exceptional events.
EVENTS_FILE = "events.jsonl"


class Monitor:
    """Writes the logs of a run.

    `metrics.jsonl` and `timing.jsonl` have one object per line: `step`,
    `split` and scalars. metrics.jsonl holds no clock times, so that an
    interrupted run ends with the lines of an uninterrupted one. TensorBoard
    events are under `tensorboard/train` and `tensorboard/eval`. A log that
    cannot be written does not stop the run (see AppendLog).
    """

    def __init__(
        self,
        run_dir: str,
        *,
        num_steps: int,
        start_step: int,
        written: Mapping[str, int] | None = None,
        peak_flops: float | None = None,
        description: Mapping[str, Any] | None = None,
        writes: bool = True,
    ) -> None:
        """Opens the logs, truncated to `start_step` where a run is resumed.

        Damaged lines are removed; missing ones are reported, by what
        `written()` was at that step. `description` is that of config.json.
        Workers that are not the chief neither write nor print (`writes`).

        Raises:
            UserError: when an earlier log cannot be truncated.
        """
        self._run_dir = run_dir
        self._start_step = start_step
        self._num_steps = num_steps
        self._writes = writes
        self.lines_cut = 0
        self._bar = ProgressBar(
            num_steps=num_steps, start_step=start_step, silent=not writes
        )
        self.throughput = Throughput(peak_flops)
        self._step = start_step
        # TensorBoard's comparison of runs shows it; it is written with the
        # first evaluation, whose metrics it names.
        self._description = description if writes else None
        self._events: dict[str, EventFile] = {}
        self._lines: dict[str, AppendLog] = {}
        self._written = {"lines": 0, "crc32": 0}
        if not writes:
            return
        path = os.path.join(run_dir, METRICS_FILE)
        lines, self.lines_cut = _truncate(path, start_step)
        for line in lines:
            self._count(line)
        if written and written != self._written:
            self.log(_damage(path, lines, written, start_step))
        _truncate(os.path.join(run_dir, TIMING_FILE), start_step)
        _truncate(os.path.join(run_dir, EVENTS_FILE), math.inf)

    def log(self, line: str) -> None:
        """Prints a line."""
        self._bar.print(line)

    def written(self) -> dict[str, int]:
        """Returns `lines` and `crc32` of metrics.jsonl, for a checkpoint."""
        return dict(self._written)

    def advance(self, loss: float, **done: float) -> None:
        """Counts an update: its loss, and the work `done`."""
        self._step += 1
        self.throughput.add(**done)
        self._bar.advance(loss, self._seconds_left())

    def log_training(
        self,
        step: int,
        values: Mapping[str, float],
        trust_ratios: Mapping[str, float],
    ) -> dict[str, float]:
        """Writes the scalars of training, and the throughput since last time.

        Returns the latter, see `Throughput.rates`. A summary alone of the
        variables' trust ratios is printed.
        """
        if trust_ratios:
            ratios = trust_ratios.values()
            values = {
                **values,
                "trust_ratio_min": min(ratios),
                "trust_ratio_median": statistics.median(ratios),
                "trust_ratio_max": max(ratios),
            }
        rates = self.throughput.rates()
        details = {TRUST_RATIO + path: r for path, r in trust_ratios.items()}
        self._line(METRICS_FILE, step, "train", {**values, **details})
        self._line(
            TIMING_FILE, step, "train", {**rates, "unix_time": time.time()}
        )
        if self._writes:
            self._event_file("train").scalars(
                step, {**values, **details, **rates}
            )
        self._bar.show_training(step, {**values, **rates}, self._seconds_left())
        return rates

    def log_evaluation(self, step: int, values: Mapping[str, float]) -> None:
        """Writes scalars of an evaluation, which throughput excludes."""
        self._line(METRICS_FILE, step, "eval", values)
        if self._writes:
            self._event_file("eval").scalars(step, values)
        if self._description:
            for summary in hparams_summaries(self._description, values):
                self._event_file("").summary(step, summary)
            self._description = None
        self._bar.show("eval", step, values)
        self.throughput.restart()

    def log_event(self, event: Mapping[str, object]) -> None:
        """Writes a line to events.jsonl, which is never truncated."""
        self._json(EVENTS_FILE, event)

    def log_text(
        self, name: str, text: str, *, split: str = "train", step: int = 0
    ) -> None:
        """Writes a text in Markdown to TensorBoard."""
        if self._writes:
            self._event_file(split).text(step, name, text)

    def log_figure(self, name: str, png: bytes, *, step: int) -> None:
        """Writes a PNG image of an evaluation to TensorBoard."""
        if self._writes:
            # Width and height have fixed offsets in a PNG.
            size = struct.unpack(">II", png[16:24])
            self._event_file("eval").image(step, name, png, size)

    def flush(self) -> None:
        """Writes everything to durable storage."""
        for log in self._logs():
            log.sync()

    def close(self) -> None:
        """Closes files and bar."""
        for log in self._logs():
            log.close()
        self._bar.close()

    def _logs(self) -> list[AppendLog]:
        return [*self._lines.values(), *self._events.values()]

    def _seconds_left(self) -> float | None:
        return self.throughput.seconds_left(self._num_steps - self._step)

    def _line(
        self, file: str, step: int, split: str, values: Mapping[str, float]
    ) -> None:
        self._json(file, {"step": step, "split": split, **json_metrics(values)})

    def _json(self, file: str, line: Mapping[str, object]) -> None:
        if not self._writes:
            return
        if file not in self._lines:
            self._lines[file] = AppendLog(
                os.path.join(self._run_dir, file), self.log
            )
        entry = json.dumps(line, allow_nan=False).encode() + b"\n"
        self._lines[file].append(entry)
        if file == METRICS_FILE:
            self._count(entry)

    def _count(self, entry: bytes) -> None:
        self._written["lines"] += 1
        self._written["crc32"] = zlib.crc32(entry, self._written["crc32"])

    def _event_file(self, split: str) -> EventFile:
        if split not in self._events:
            self._events[split] = EventFile(
                os.path.join(self._run_dir, "tensorboard", split),
                self._start_step,
                self.log,
            )
        return self._events[split]


def _truncate(path: str, step: float) -> tuple[list[bytes], int]:
    """Removes damaged and later lines; returns the rest, and how many went."""
    try:
        if not files.exists(path):
            return [], 0
        with files.open(path) as file:
            content = file.read()
        found = [line for line in content.split(b"\n") if line]
        kept = [line + b"\n" for line in found if _step(line) <= step]
        if b"".join(kept) != content:
            files.write(path, b"".join(kept))
    except OSError as error:
        raise UserError(
            f"{path} cannot be truncated to step {step}: {error.strerror}."
        ) from None
    return kept, len(found) - len(kept)


def _step(line: bytes) -> float:
    """Returns the step of a log line; NaN of a damaged line."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, TypeError, KeyError):
        # The last line of a run that was killed while it was written.
        return math.nan


def _damage(
    path: str, lines: Sequence[bytes], written: Mapping[str, int], step: int
) -> str:
    """Returns a warning about a log that differs from its checkpoint."""
    steps = sorted({0.0, *map(_step, lines), float(step)}, reverse=True)
    # The longest gap, and of several the last: where a file was cut.
    end, begin = max(
        itertools.pairwise(steps), key=lambda span: span[0] - span[1]
    )
    return (
        f"WARNING: {path} is not as this run left it at step {step}: it has "
        f"{len(lines)} of {written['lines']} lines; the longest stretch "
        f"without one is from step {begin:.0f} to {end:.0f}. The run "
        "continues, and its log stays incomplete."
    )
