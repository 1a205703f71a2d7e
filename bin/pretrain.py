"""Pretraining: masked LM and the sentence objective of the shards.

python -m bin.pretrain --preset=tiny --train_data=shards --eval_data=shards \\
    --run_dir=runs/tiny
"""

import dataclasses
import math

from absl import flags

from albert_tf.config import (
    PRESETS,
    PretrainConfig,
    RuntimeConfig,
    override,
    preset,
)
from bin import command_line, own_rows, training_programs

FLAGS = flags.FLAGS


def define_flags() -> None:
    own_rows.define_flag()
    flags.DEFINE_enum(
        "preset", None, list(PRESETS), "Model size, with its hyperparameters."
    )
    flags.DEFINE_list(
        "train_data",
        None,
        "Shards: a directory or a glob; several, comma-separated, for "
        "--phases.",
    )
    flags.DEFINE_list(
        "eval_data",
        None,
        "Held-out shards: one for all phases, or one for each.",
    )
    flags.DEFINE_float(
        "shard_cache_gb",
        None,
        "Limit of this machine's disk for copies of shards in a bucket, in "
        "gigabytes. Records of shards that do not fit are read from the "
        "bucket, which needs requirements-buckets.txt. Default: no limit.",
        lower_bound=0.0,
    )
    training_programs.define_flags()
    command_line.define_settings(PretrainConfig())
    command_line.required("train_data", "eval_data", "run_dir")


def main() -> None:
    training_programs.load_tensorflow()
    from albert_tf.interchange.model_directory import find_initial_weights
    from albert_tf.jobs.pretrain import run_pretraining
    from albert_tf.jobs.pretraining_phases import PretrainingShards
    from albert_tf.jobs.pretraining_verdict import pretraining_verdict
    from albert_tf.records.shards import read_metadata, shard_directory
    from albert_tf.rundir.run_directory import extended

    # The default vocabulary size is that of the shards.
    metadata = read_metadata(shard_directory(FLAGS.train_data[0]))
    config = override(
        PretrainConfig(), {"vocab_size": metadata["tokenizer"]["vocab_size"]}
    )
    initial = None
    if FLAGS.init_from:
        initial = find_initial_weights(FLAGS.init_from)
        config = dataclasses.replace(config, model=initial.config)
    if FLAGS.config_json:
        config, _ = training_programs.recorded_config(
            "pretrain", PretrainConfig
        )
    if FLAGS.preset:
        config = override(config, preset(FLAGS.preset))
    limit = FLAGS.shard_cache_gb
    config = command_line.with_flags(config)
    shards = PretrainingShards(
        FLAGS.train_data,
        FLAGS.eval_data,
        max_copied_bytes=math.inf if limit is None else 1e9 * limit,
    )
    runtime = command_line.with_flags(RuntimeConfig())
    evaluation = run_pretraining(
        config,
        shards,
        run_dir=FLAGS.run_dir,
        runtime=runtime,
        initial=initial,
        report=training_programs.report_notes(),
    )
    verdict = pretraining_verdict(
        evaluation,
        extended(config, runtime),
        initialized=bool(FLAGS.init_from),
    )
    training_programs.print_evaluation(evaluation, verdict, FLAGS.run_dir)


if __name__ == "__main__":
    command_line.run(define_flags, main)
