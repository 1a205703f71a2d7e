"""Runs side by side: what TensorBoard's HParams tab reads."""

from collections.abc import Iterator, Mapping
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, summary

from albert_tf.rundir.event_file import tag

# TensorBoard's type of a setting's value, by ours.
_TYPES = {
    bool: api_pb2.DATA_TYPE_BOOL,
    int: api_pb2.DATA_TYPE_FLOAT64,
    float: api_pb2.DATA_TYPE_FLOAT64,
    str: api_pb2.DATA_TYPE_STRING,
}

# TensorBoard shows five columns until told otherwise, and these come first, in
# its own order; by job.
_FIRST = {
    "pretrain": {
        "hidden_size",
        "learning_rate",
        "num_hidden_layers",
        "num_train_steps",
        "optimizer",
        "sharing",
        "train_batch_size",
    },
    "finetune": {
        "learning_rate",
        "num_train_steps",
        "seed",
        "task",
        "train_batch_size",
    },
}
# What of a run's description says how it is trained.
_SETTINGS = ("task", "config", "model")


class Comparison:
    """The settings of a run, and the measures that it is judged by.

    The columns are named here: left to itself TensorBoard takes every scalar
    for a measure, the trust ratio of each variable too.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        """Keeps what decides the run; sections of settings are opened up.

        Args:
            description: as config.json has it.
        """
        self._first = _FIRST[description["job"]]
        self._settings = dict(
            _flat({n: description[n] for n in _SETTINGS if n in description})
        )
        self._begun = False

    def begin(
        self, split: str, measures: Mapping[str, float]
    ) -> Iterator[Summary]:
        """Yields, the first time, what belongs into the directory above.

        Args:
            split: the directory, below, of the measures.
            measures: scalars there, by name.
        """
        if self._begun:
            return
        self._begun = True
        yield summary.experiment_pb(
            hparam_infos=[
                api_pb2.HParamInfo(
                    name=name,
                    type=_TYPES[type(value)],
                    # What it sorts by.
                    differs=name in self._first,
                )
                for name, value in self._settings.items()
            ],
            metric_infos=[
                api_pb2.MetricInfo(
                    name=api_pb2.MetricName(group=split, tag=tag(name)),
                    display_name=name,
                )
                for name in measures
            ],
        )
        yield summary.session_start_pb(hparams=self._settings)


def _flat(
    settings: Mapping[str, object],
) -> Iterator[tuple[str, bool | int | float | str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        else:
            yield name, value if type(value) in _TYPES else str(value)
