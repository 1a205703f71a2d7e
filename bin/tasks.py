"""The flags that say a task, and what they say."""

import os
from collections.abc import Collection
from typing import Any

from absl import flags

from albert_tf.config import UserError
from albert_tf.tasks.base import Task
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import custom_task
from bin.benchmarking.machine import available_cores

FLAGS = flags.FLAGS

_CUSTOM = "custom"


def define_flags(help: str, others: Collection[str] = ()) -> None:
    """Defines --task and what belongs to it; `others` are no tasks."""
    flags.DEFINE_enum("task", None, [*TASKS, _CUSTOM, *others], help)
    flags.DEFINE_list(
        "columns",
        [],
        "What the columns of your own files are (custom), role=name with the "
        "roles text (once or twice) and label or number; context, question "
        "(or none), choice (for each) and label; word and tag, whose names are "
        "numbers from 0, or from -1 backwards.",
    )


def define_feature_flags() -> None:
    """Defines what decides how features of examples are made."""
    flags.DEFINE_string(
        "feature_cache",
        _default_cache(),
        "Where the features of examples are kept for the next run; empty: "
        "nowhere.",
    )


def chosen() -> Task:
    """Returns the task that --task and --columns say.

    Raises:
        UserError: when they do not go together.
    """
    if FLAGS.task == _CUSTOM:
        if not FLAGS.columns:
            raise UserError(
                "--task=custom needs --columns, such as "
                "--columns=text=sentence,label=label."
            )
        return custom_task(FLAGS.columns)
    if FLAGS.columns:
        raise UserError(
            f"--columns={','.join(FLAGS.columns)} is for --task=custom; the "
            f"columns of {FLAGS.task} are known."
        )
    return TASKS[FLAGS.task]


def settings_of(
    task: Task, recipe: str, given: Collection[str]
) -> dict[str, Any]:
    """Returns the settings of a task's recipe, and tells those that hold.

    Where steps or epochs are given, neither its steps nor its warm-up hold.
    """
    if recipe == "none":
        return {}
    settings = dict(task.settings)
    if recipe == "v2":
        settings |= task.settings_v2
    if {"num_train_steps", "num_train_epochs"} & set(given):
        settings.pop("num_train_steps", None)
        settings.pop("num_warmup_steps", None)
    shown = [
        f"{name}={value}"
        for name, value in settings.items()
        if name not in given
    ]
    if shown:
        print(f"Settings of the paper for {task.name}: {', '.join(shown)}.")
    return settings


def workers() -> int:
    """Returns how many processes make features."""
    return len(available_cores())


def _default_cache() -> str:
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(caches, "albert_tf", "features")
