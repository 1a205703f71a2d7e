"""What a fine-tuned model keeps of its task: task.json, beside its weights."""

import dataclasses
import os
from typing import Any

from albert_tf.config import FeatureConfig, UserError, from_dict, to_dict
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json

TASK_FILE = "task.json"


@dataclasses.dataclass(frozen=True)
class TaskRecord:
    """What a model was fine-tuned for.

    Attributes:
        task: its name.
        features: how its examples become sequences, its scores answers.
    """

    task: str
    features: FeatureConfig

    def write(self, directory: str) -> None:
        """Writes the file into a model directory."""
        write_json(
            os.path.join(directory, TASK_FILE),
            {"task": self.task, "features": to_dict(self.features)},
        )


def read_task_record(
    directory: str, max_position_embeddings: int
) -> TaskRecord | None:
    """Returns what a model directory says of its task, None if nothing.

    Args:
        directory: with the file, or without.
        max_position_embeddings: the longest sequence that the model reads.

    Raises:
        UserError: when the file is damaged, or its sequences are longer.
    """
    path = os.path.join(directory, TASK_FILE)
    if not files.isfile(path):
        return None
    values: Any = read_json(path)
    task = values.get("task")
    features = values.get("features")
    if not isinstance(task, str) or not isinstance(features, dict):
        raise UserError(
            f"{path} must have a string 'task' and an object 'features'."
        )
    config = from_dict(FeatureConfig, features, path)
    if config.max_seq_length > max_position_embeddings:
        raise UserError(
            f"{path}: max_seq_length={config.max_seq_length} exceeds the "
            f"model's max_position_embeddings={max_position_embeddings}."
        )
    return TaskRecord(task, config)
