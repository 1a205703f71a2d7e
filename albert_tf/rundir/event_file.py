"""TensorBoard event files that survive resumed runs and full disks.

TensorFlow's own summary writer cannot mark a restart, after which TensorBoard
drops the points of steps that are made again.
"""

import io
import os
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import summary as hparams
from tensorboard.plugins.image.metadata import create_summary_metadata
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.util.tensor_util import make_tensor_proto

from albert_tf.config import Log
from albert_tf.records.tfrecord import write_records
from albert_tf.rundir.append_log import AppendLog

# TensorBoard's groups of scalars, by the ends of their names.
_GROUPS = {
    ("loss", "perplexity"): "loss",
    ("accuracy",): "accuracy",
    ("_per_second", "share_of_ceiling", "data_wait_share"): "speed",
    (
        "learning_rate",
        "_norm",
        "loss_scale",
        "skipped_steps",
        "records_crc32",
        "trust_ratio_min",
        "trust_ratio_median",
        "trust_ratio_max",
    ): "updates",
}
# Prefix of a variable's path in the name of its trust ratio.
TRUST_RATIO = "trust_ratio/"

# TensorBoard's data types of settings.
_TYPES = {
    bool: api_pb2.DATA_TYPE_BOOL,
    int: api_pb2.DATA_TYPE_FLOAT64,
    float: api_pb2.DATA_TYPE_FLOAT64,
    str: api_pb2.DATA_TYPE_STRING,
}
# The settings that TensorBoard shows first: by default it shows five columns
# only.
_SHOWN_FIRST = {
    "learning_rate",
    "num_train_steps",
    "optimizer",
    "train_batch_size",
    "hidden_size",
    "num_hidden_layers",
    "seed",
    "sharing",
    "task",
}


def tag(name: str) -> str:
    """Returns the tag of a scalar in TensorBoard: `group/title`.

    Trust ratios are grouped by block or head. TensorBoard shows a title after
    the last slash only, so there is one:
    `trust_ratio/albert/encoder/block/attention/query/kernel` becomes
    `trust_ratio_block/attention.query`.
    """
    if name.startswith(TRUST_RATIO):
        path = name.removeprefix(TRUST_RATIO).removesuffix("/kernel")
        parts = path.split("/")[1:] or [path]
        if parts[0] == "encoder":
            parts = parts[1:]
        group = f"trust_ratio_{parts[0]}" if len(parts) > 1 else "trust_ratio"
        return f"{group}/{'.'.join(parts[1:] or parts)}"
    if "/" in name:
        return name
    for endings, group in _GROUPS.items():
        if name.endswith(endings):
            return f"{group}/{name}"
    return f"measures/{name}"


class EventFile(AppendLog):
    """A new event file in a directory that may hold earlier ones."""

    def __init__(self, directory: str, start_step: int, log: Log) -> None:
        """Begins the file with the mark of a (re)start at `start_step`."""
        # TensorBoard reads files in the order of their names.
        name = (
            f"events.out.tfevents.{time.time():017.6f}."
            f"{socket.gethostname()}.{os.getpid()}"
        )
        super().__init__(os.path.join(directory, name), log)
        self._append_event(Event(file_version="brain.Event:2"))
        # A run that starts at 0 invalidates all earlier events.
        first = start_step + 1 if start_step else 0
        self._append_event(
            Event(step=first, session_log=SessionLog(status=SessionLog.START))
        )

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Writes scalars, all in one event: there may be hundreds."""
        summary = Summary()
        for name, value in values.items():
            summary.MergeFrom(scalar_pb(tag(name), value))
        self.summary(step, summary)

    def text(self, step: int, name: str, text: str) -> None:
        """Writes a text in Markdown."""
        self.summary(step, text_pb(name, text))

    def image(
        self, step: int, name: str, png: bytes, size: tuple[int, int]
    ) -> None:
        """Writes an image of `size`, width and height in pixels."""
        value = Summary.Value(
            tag=name,
            metadata=create_summary_metadata(
                display_name=name, description="", converted_to_tensor=False
            ),
        )
        content = [str(side).encode() for side in size]
        value.tensor.CopyFrom(make_tensor_proto([*content, png]))
        self.summary(step, Summary(value=[value]))

    def summary(self, step: int, summary: Summary) -> None:
        """Writes the summary of a TensorBoard plugin."""
        # Some plugins return TensorFlow's class, others TensorBoard's own.
        content = Summary.FromString(summary.SerializeToString())
        self._append_event(Event(step=step, summary=content))

    def _append_event(self, event: Event) -> None:
        event.wall_time = time.time()
        frame = io.BytesIO()
        write_records(frame, [event.SerializeToString()])
        self.append(frame.getvalue())


def hparams_summaries(
    description: Mapping[str, Any], metrics: Mapping[str, float]
) -> Iterator[Summary]:
    """Yields the summaries of a run's hyperparameters and its metrics.

    `description` is the content of config.json. The metrics of evaluations are
    named: TensorBoard would otherwise list every scalar.
    """
    sections = ("task", "config", "model")
    settings = dict(
        _flat({n: description[n] for n in sections if n in description})
    )
    yield hparams.experiment_pb(
        hparam_infos=[
            api_pb2.HParamInfo(
                name=name,
                type=_TYPES[type(value)],
                # TensorBoard sorts the columns by this.
                differs=name in _SHOWN_FIRST,
            )
            for name, value in settings.items()
        ],
        metric_infos=[
            api_pb2.MetricInfo(
                name=api_pb2.MetricName(group="eval", tag=tag(name)),
                display_name=name,
            )
            for name in metrics
        ],
    )
    yield hparams.session_start_pb(hparams=settings)


def _flat(
    settings: Mapping[str, Any],
) -> Iterator[tuple[str, bool | int | float | str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        else:
            yield name, value if type(value) in _TYPES else str(value)
