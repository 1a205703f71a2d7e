"""The task of a fine-tuned model: task.json, beside its weights."""

import dataclasses
import os

from albert_tf.config import (
    FeatureConfig,
    UserError,
    from_dict,
    require,
    to_dict,
)
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json

TASK_FILE = "task.json"


@dataclasses.dataclass(frozen=True)
class TaskRecord:
    """The task that a model was fine-tuned for.

    Attributes:
        task: its name.
        features: its settings of features and of predictions.
        pairs: whether its examples are pairs of texts.
    """

    task: str
    features: FeatureConfig
    pairs: bool = False

    def write(self, directory: str) -> None:
        """Writes the file into a model directory."""
        write_json(os.path.join(directory, TASK_FILE), to_dict(self))


def read_task_record(
    directory: str, max_position_embeddings: int
) -> TaskRecord | None:
    """Returns the record in a model directory, None where there is none.

    Raises:
        UserError: when the file is damaged, or its max_seq_length exceeds
            `max_position_embeddings`, that of the model.
    """
    path = os.path.join(directory, TASK_FILE)
    if not files.isfile(path):
        return None
    values = read_json(path)
    task, features = values.get("task"), values.get("features")
    # Records of earlier versions have no `pairs`.
    pairs = values.get("pairs", False)
    if not isinstance(task, str) or not isinstance(features, dict):
        raise UserError(
            f"{path} must have a string 'task' and an object 'features'."
        )
    require(
        isinstance(pairs, bool),
        f"{path}: 'pairs' must be true or false, got {pairs!r}.",
    )
    config = from_dict(FeatureConfig, features, path)
    require(
        config.max_seq_length <= max_position_embeddings,
        f"{path}: max_seq_length={config.max_seq_length} exceeds the model's "
        f"max_position_embeddings={max_position_embeddings}.",
    )
    return TaskRecord(task, config, pairs)
