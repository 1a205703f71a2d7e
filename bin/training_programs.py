"""Shared by programs that train: flags of a run, start and end."""

import os
import shlex
import sys
from collections.abc import Iterable
from typing import Any

from absl import flags

from albert_tf.config import Config, RuntimeConfig, from_dict, require
from albert_tf.io.json_files import read_json
from albert_tf.rundir.run_directory import check_usable
from bin import command_line
from bin.show_results import results_table

FLAGS = flags.FLAGS
# --helpshort lists them as flags of the program.
flags.disclaim_key_flags()


def define_flags(*, report: bool = True) -> None:
    flags.DEFINE_string("run_dir", None, "Run directory to write or resume.")
    flags.DEFINE_string(
        "config_json",
        None,
        "The config.json of a run: start from its settings.",
    )
    flags.DEFINE_string(
        "init_from",
        None,
        "Initial weights: a model or run directory, a model on the hub "
        "(hf://albert/albert-base-v2), or a Google TF1 checkpoint. The "
        "architecture is theirs unless flags change it.",
    )
    if report:
        flags.DEFINE_bool(
            "report",
            True,
            "Write report.html, a page on the run, and README.md, a model card "
            "as on the hub, into the run directory.",
        )
    command_line.define_settings(RuntimeConfig())


def load_tensorflow(run_dir: str = "") -> None:
    """Imports TensorFlow, unless the run directory cannot be used.

    It is --run_dir, or the first of several in it.
    """
    # The workers of one job share its directory.
    if FLAGS.strategy != "multi_worker":
        check_usable(run_dir or FLAGS.run_dir)
    command_line.load_tensorflow()


def recorded_config(
    job: str, kind: type[Config]
) -> tuple[Config, dict[str, Any]]:
    """Returns the settings in --config_json, and those of its model.

    Raises:
        UserError: when it is not the config.json of a run of `job`.
    """
    path = FLAGS.config_json
    values = read_json(path)
    require(
        values.get("job") == job and isinstance(values.get("config"), dict),
        f"{path} is not the config.json of a {job} run; it lies in the run "
        "directory, not in its model/.",
    )
    return from_dict(kind, values["config"], path), values.get("model", {})


def report_notes() -> list[str] | None:
    """Returns the command, for the report; None without one."""
    if not FLAGS.report:
        return None
    _, *arguments = sys.orig_argv
    return [shlex.join(["python", *arguments])]


def print_evaluation(
    evaluation: dict[str, float], verdict: Iterable[str], title: str
) -> None:
    """Prints the model's evaluation in a table, then in words, and its path.

    `title` is that of the run in the table.
    """
    print(f"\n{results_table({title: evaluation})}\n")
    for line in verdict:
        print(line)
    print(f"The model is in {os.path.join(FLAGS.run_dir, 'model')}.")
