"""Pretraining: masked LM, and the sentence objective of the shards.

python -m bin.pretrain --preset=tiny --train_data=shards --eval_data=shards \\
    --run_dir=runs/tiny
"""

import dataclasses

from absl import flags

from albert_tf.config import (
    PRESETS,
    PretrainConfig,
    RuntimeConfig,
    from_dict,
    override,
    preset,
)
from albert_tf.rundir.run_directory import check_not_in_use
from bin import command_line
from bin.results_table import results_table

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_enum("preset", None, list(PRESETS), "A size with its recipe.")
    flags.DEFINE_string(
        "config_json",
        None,
        "The config.json of a run: start from its settings.",
    )
    flags.DEFINE_list(
        "train_data",
        None,
        "Shards: a directory or a glob; several, separated by commas, for "
        "--phases.",
    )
    flags.DEFINE_list(
        "eval_data",
        None,
        "Held-out shards, likewise: one for all phases, or one for each.",
    )
    flags.DEFINE_string("run_dir", None, "Where the run writes.")
    flags.DEFINE_string(
        "init_from",
        None,
        "Weights to start from: a model or run directory, or a Google TF1 "
        "checkpoint; its architecture is the default.",
    )
    command_line.define_settings(PretrainConfig())
    command_line.define_settings(RuntimeConfig())
    command_line.required("train_data", "eval_data", "run_dir")


def main() -> None:
    """Pretrains and prints the last evaluation."""
    # The workers of one job share its directory.
    if FLAGS.strategy != "multi_worker":
        check_not_in_use(FLAGS.run_dir)
    command_line.load_tensorflow()
    from albert_tf.interchange.model_directory import find_initial_weights
    from albert_tf.jobs.pretrain import run_pretraining
    from albert_tf.records.shards import read_metadata, shard_directory

    config = PretrainConfig()
    # The vocabulary is that of the shards, unless something says otherwise;
    # then both must agree.
    metadata = read_metadata(shard_directory(FLAGS.train_data[0]))
    config = override(
        config, {"vocab_size": metadata["tokenizer"]["vocab_size"]}
    )
    initial = None
    if FLAGS.init_from:
        initial = find_initial_weights(FLAGS.init_from)
        config = dataclasses.replace(config, model=initial.config)
    if FLAGS.config_json:
        values = command_line.recorded_config(FLAGS.config_json, "pretrain")
        config = from_dict(PretrainConfig, values["config"], FLAGS.config_json)
    if FLAGS.preset:
        config = override(config, preset(FLAGS.preset))
    config = override(config, command_line.given_settings(config))
    evaluation = run_pretraining(
        config,
        train_data=FLAGS.train_data,
        eval_data=FLAGS.eval_data,
        run_dir=FLAGS.run_dir,
        runtime=command_line.given_runtime(),
        initial=initial,
    )
    print(f"\n{results_table({FLAGS.run_dir: evaluation})}")
    print(f"The model is in {FLAGS.run_dir}/model.")


if __name__ == "__main__":
    command_line.run(define_flags, main)
