"""The flags that choose a task."""

import os
from collections.abc import Collection, Sequence

from absl import flags

from albert_tf.config import require
from albert_tf.rundir import recorded_division
from albert_tf.rundir.recorded_division import RecordedDivision
from albert_tf.tasks.base import Task
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import (
    OWN_TASKS,
    columns_flag,
    custom_task,
)
from albert_tf.tasks.formats.rows import Reading
from albert_tf.tasks.formats.tables import QUOTING
from albert_tf.tasks.kinds.multi_label import MultiLabelClassification
from albert_tf.tasks.splits import DEFAULT_FRACTION, Split
from bin import command_line

FLAGS = flags.FLAGS
# --helpshort lists them as flags of the program.
flags.disclaim_key_flags()

_CUSTOM = "custom"
# Flags beside --columns that only users' own files have.
OF_OWN_FILES = ("quoting", "skip_bad_rows", "label_separator", "dev_fraction")


def define_flags(
    help: str,
    others: Collection[str] = (),
    data_help: str = "Directory of the task's files.",
) -> None:
    """Defines --task, --data_dir, --columns and how own files are read.

    `others` are further values of --task.
    """
    flags.DEFINE_enum("task", None, [*TASKS, _CUSTOM, *others], help)
    flags.DEFINE_string(
        "data_dir",
        None,
        f"{data_help} Of your own files also one file, or a directory with a "
        "folder for each class.",
    )
    flags.DEFINE_list(
        "columns",
        [],
        "Columns of your own files (--task=custom, which is then the default), "
        "as role=name with the roles text (once or twice) and label, labels or "
        "number (label several times for columns of 0 and 1 named like the "
        "labels that a text may have); context, question (or none), choice "
        "(for each) and label; word and tag, whose names are numbers from 0, "
        "or from -1 backwards; words and tags, with lists. The list is a line "
        "of CSV: a name with a comma is quoted together with its role, as in "
        f"{columns_flag(['text=a, b', 'label=c'])}.",
    )
    define_row_flags()
    flags.DEFINE_float(
        "dev_fraction",
        None,
        "Share of your own training examples that is held out as dev, where "
        "there are no dev files: stratified by class, equal texts on one side. "
        f"Default: {DEFAULT_FRACTION} of a single file, or of a directory that "
        "is not divided.",
        lower_bound=0.001,
        upper_bound=0.9,
    )
    flags.DEFINE_integer(
        "split_seed",
        0,
        "Seed by which examples are held out, or divided into folds.",
        lower_bound=0,
    )
    flags.DEFINE_string(
        "label_separator",
        Reading.label_separator,
        "Stands between several labels in one text (multi-label "
        "classification).",
    )


def define_quoting_flag() -> None:
    """Defines --quoting, which users' own tables have."""
    flags.DEFINE_enum(
        "quoting",
        None,
        [*QUOTING],
        "Quotes in your own tables (.tsv, .csv). csv: a field that begins with "
        "a quote may hold separators, line ends and, doubled, quotes; none: "
        "quotes are characters like others. Default: csv.",
    )


def define_row_flags() -> None:
    """Defines --quoting and --skip_bad_rows."""
    define_quoting_flag()
    flags.DEFINE_bool(
        "skip_bad_rows",
        False,
        "Skip and count rows of your own files that cannot be used, as those "
        "without a label; otherwise they are listed as an error.",
    )


def define_feature_flags() -> None:
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    flags.DEFINE_string(
        "feature_cache",
        os.path.join(caches, "albert_tf", "features"),
        "Directory that caches features for the next run; empty: no cache.",
    )


def chosen(model_dir: str = "") -> Task:
    """Returns the task of the flags that `define_flags` defines.

    Without --task it is that of --columns, or the one that `model_dir` was
    fine-tuned for.

    Raises:
        UserError: when they do not go together, or there is no task.
    """
    if not FLAGS.task and FLAGS.columns and not model_dir:
        FLAGS.task = _CUSTOM
    if model_dir and not FLAGS.task:
        _choose_task_of(model_dir)
    require(
        bool(FLAGS.task),
        "--task is required; --columns alone is --task=custom.",
    )
    task = _chosen()
    require(
        not FLAGS["label_separator"].present
        or isinstance(task.kind, MultiLabelClassification),
        f"--label_separator is for several labels; {task.name} has one.",
    )
    return task


def _choose_task_of(model_dir: str) -> None:
    """Sets the flags of the task that are not given to those of a model."""
    command_line.load_tensorflow()
    from albert_tf.interchange.model_directory import load_task_record

    record = load_task_record(model_dir)
    require(
        record is not None,
        f"{model_dir} has no record of a task (task.json); give --task.",
    )
    known = FLAGS["task"].parser.enum_values
    require(
        record.task in known,
        f"{model_dir} was fine-tuned for {record.task}, which is not among "
        f"{', '.join(known)}; --import=MODULE adds tasks of your own.",
    )
    FLAGS.task = _CUSTOM if FLAGS.columns else record.task
    if record.task == _CUSTOM and not FLAGS.columns:
        FLAGS.columns = [*record.columns]
    if record.label_separator and not FLAGS["label_separator"].present:
        FLAGS.label_separator = record.label_separator


def _chosen() -> Task:
    require(bool(FLAGS.label_separator), "--label_separator is empty.")
    reading = Reading(
        FLAGS.quoting or Reading.quoting,
        FLAGS.skip_bad_rows,
        FLAGS.label_separator,
        Split(FLAGS.dev_fraction, FLAGS.split_seed),
    )
    if FLAGS.task == _CUSTOM:
        require(
            bool(FLAGS.columns),
            "--task=custom needs --columns, such as "
            "--columns=text=sentence,label=label.",
        )
        task = custom_task(FLAGS.columns, reading)
        require(
            FLAGS.quoting != "csv" or ".csv" in task.reader.extensions,
            "--quoting=csv: a file of words has no quoted fields.",
        )
        return task
    require(
        not FLAGS.columns,
        f"{columns_flag(FLAGS.columns)} is for --task=custom; the columns of "
        f"{FLAGS.task} are known.",
    )
    if FLAGS.task in OWN_TASKS:
        return OWN_TASKS[FLAGS.task](reading)
    for name in OF_OWN_FILES:
        require(
            not FLAGS[name].present,
            f"--{name} is for your own files (--task={', '.join(OWN_TASKS)} or "
            f"{_CUSTOM}); the files of {FLAGS.task} have their own form.",
        )
    return TASKS[FLAGS.task]


def divided_as_in_training(task: Task, model_dirs: Sequence[str]) -> Task:
    """Returns the task with the dev examples that models' runs held out.

    A fold's, too, where --data_dir has a dev file (`recorded_division`).
    """
    divisions = [RecordedDivision.of_model(path) for path in model_dirs]
    return recorded_division.divided_as_in_training(
        task, divisions, FLAGS.data_dir, print
    )


def chosen_if_any(model_dir: str = "") -> Task | None:
    """Returns the task, None without --task and --data_dir.

    Without --task it is that of --columns, or the one that `model_dir` was
    fine-tuned for.
    """
    chosen_by = FLAGS.task or FLAGS.columns or (FLAGS.data_dir and model_dir)
    given = (chosen_by, FLAGS.data_dir)
    others = (FLAGS.columns, *(FLAGS[name].present for name in OF_OWN_FILES))
    require(
        all(given) or not any((*given, *others)),
        "--task and --data_dir go together; give both.",
    )
    return chosen(model_dir) if FLAGS.data_dir else None
