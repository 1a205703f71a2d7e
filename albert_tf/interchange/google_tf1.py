"""Checkpoints of google-research/albert (TensorFlow 1), read by name."""

import os

import numpy as np

from albert_tf.config import ModelConfig, UserError, override, read_json

# Keys of released configuration files that nothing reads.
_IGNORED_KEYS = frozenset(
    (
        "net_structure_type",
        "layers_to_keep",
        "gap_size",
        "num_memory_blocks",
        "down_scale_factor",
    )
)
# Optimizer slots and counters, which are not weights.
_SLOTS = ("/adam_m", "/adam_v")


def is_checkpoint(path: str) -> bool:
    """Returns whether `path` is the prefix of a TensorFlow checkpoint."""
    return os.path.isfile(path + ".index")


def read_config(path: str) -> ModelConfig:
    """Returns the configuration in an `albert_config.json`."""
    values = {
        name: value
        for name, value in read_json(path).items()
        if name not in _IGNORED_KEYS
    }
    try:
        return override(ModelConfig(), values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def config_beside(path: str) -> ModelConfig:
    """Returns the configuration in the folder of a checkpoint."""
    return read_config(
        os.path.join(os.path.dirname(path) or ".", "albert_config.json")
    )


def read_weights(path: str) -> dict[str, np.ndarray]:
    """Returns the weights of the checkpoint `path` (a prefix) by name.

    Optimizer slots and `global_step` are left out.

    Raises:
        UserError: when the checkpoint cannot be read.
    """
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(path)
        names = reader.get_variable_to_shape_map()
        return {
            name: reader.get_tensor(name)
            for name in sorted(names)
            if name != "global_step" and not name.endswith(_SLOTS)
        }
    except (tf.errors.OpError, IndexError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{path} is not a readable TensorFlow checkpoint: {reason}"
        ) from None
