"""The flags that choose a task."""

import os
from collections.abc import Collection

from absl import flags

from albert_tf.config import require
from albert_tf.tasks.base import Task
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import custom_task

FLAGS = flags.FLAGS
# --helpshort lists them as flags of the program.
flags.disclaim_key_flags()

_CUSTOM = "custom"


def define_flags(
    help: str,
    others: Collection[str] = (),
    data_help: str = "Directory of the task's files.",
) -> None:
    """Defines --task, --data_dir and --columns.

    `others` are further values of --task.
    """
    flags.DEFINE_enum("task", None, [*TASKS, _CUSTOM, *others], help)
    flags.DEFINE_string("data_dir", None, data_help)
    flags.DEFINE_list(
        "columns",
        [],
        "Columns of your own files (--task=custom), as role=name with the "
        "roles text (once or twice) and label or number; context, question "
        "(or none), choice (for each) and label; word and tag, whose names are "
        "numbers from 0, or from -1 backwards.",
    )


def define_feature_flags() -> None:
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    flags.DEFINE_string(
        "feature_cache",
        os.path.join(caches, "albert_tf", "features"),
        "Directory that caches features for the next run; empty: no cache.",
    )


def chosen() -> Task:
    """Returns the task of --task and --columns.

    Raises:
        UserError: when they do not go together.
    """
    if FLAGS.task == _CUSTOM:
        require(
            bool(FLAGS.columns),
            "--task=custom needs --columns, such as "
            "--columns=text=sentence,label=label.",
        )
        return custom_task(FLAGS.columns)
    require(
        not FLAGS.columns,
        f"--columns={','.join(FLAGS.columns)} is for --task=custom; the "
        f"columns of {FLAGS.task} are known.",
    )
    return TASKS[FLAGS.task]


def chosen_if_any() -> Task | None:
    """Returns the task, None without --task and --data_dir."""
    given = (FLAGS.task, FLAGS.data_dir)
    require(
        all(given) or not any((*given, FLAGS.columns)),
        "--task and --data_dir go together; give both.",
    )
    return chosen() if FLAGS.task else None
