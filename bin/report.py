"""The report of a run that has ended, as bin.pretrain and bin.finetune write.

python -m bin.report --run_dir=runs/mrpc/run-1 --data_dir=glue/MRPC
python -m bin.report --run_dir=runs/tiny --eval_data=shards
"""

import os

from absl import flags

from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.io.json_files import read_json
from albert_tf.rundir.run_directory import CONFIG
from albert_tf.rundir.run_results import run_directories
from bin import command_line, own_rows, tasks

FLAGS = flags.FLAGS


def define_flags() -> None:
    own_rows.define_flag()
    tasks.define_flags("Task of a fine-tuning run. Default: its model's.")
    tasks.define_feature_flags()
    flags.DEFINE_string("run_dir", None, "Run directory, of a run that ended.")
    flags.DEFINE_string(
        "eval_data",
        "",
        "Held-out shards, or a glob, for samples in the report of a "
        "pretraining run.",
    )
    flags.DEFINE_string(
        "output", None, "File to write. Default: report.html in --run_dir."
    )
    command_line.written_as("output", [".html"])
    command_line.required("run_dir")


def main() -> None:
    path = os.path.join(FLAGS.run_dir, CONFIG)
    if not files.isfile(path):
        runs = run_directories(FLAGS.run_dir)
        raise UserError(
            f"{FLAGS.run_dir} holds several runs; name one of them, such as "
            f"{runs[0]}."
        )
    job = read_json(path).get("job")
    require(
        job is not None,
        f"{FLAGS.run_dir} is not a run directory; a model directory is the "
        "model/ in one.",
    )
    require(
        job != "embeddings",
        f"{FLAGS.run_dir} is a training of embeddings, which has no report; "
        "python -m bin.show_results prints its evaluations.",
    )
    task = tasks.chosen_if_any(FLAGS.run_dir if job == "finetune" else "")
    require(
        job != "finetune" or task is not None,
        f"{FLAGS.run_dir} is a fine-tuning run: give its --data_dir too.",
    )
    require(
        job == "finetune" or task is None,
        f"{FLAGS.run_dir} is a pretraining run; --task and --data_dir are for "
        "fine-tuning runs.",
    )
    require(
        task is None or not FLAGS.eval_data,
        f"{FLAGS.run_dir} is a fine-tuning run; --eval_data is for pretraining "
        "runs.",
    )
    command_line.load_tensorflow()
    from albert_tf.cluster.environment import usable_cpus
    from albert_tf.jobs.run_reports import finetuning_report, pretraining_report
    from albert_tf.report.page import to_html
    from albert_tf.report.run_sections import REPORT_FILE

    if task:
        page = finetuning_report(
            FLAGS.run_dir,
            task,
            FLAGS.data_dir,
            workers=usable_cpus(),
            cache_dir=FLAGS.feature_cache,
        )
    else:
        page = pretraining_report(FLAGS.run_dir, FLAGS.eval_data)
    output = FLAGS.output or os.path.join(FLAGS.run_dir, REPORT_FILE)
    files.write(output, to_html(page).encode())
    print(f"Written: {output}")


if __name__ == "__main__":
    command_line.run(define_flags, main)
