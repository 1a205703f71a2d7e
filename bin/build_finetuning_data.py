"""A task's examples as TFRecord shards, laid out as google-research/albert's.

python -m bin.build_finetuning_data --task=MRPC --data_dir=glue/MRPC \\
    --tokenizer=vocab --output_dir=shards/mrpc --max_seq_length=128

bin.finetune needs none of it: it reads the task's own files.
"""

from absl import flags

from albert_tf.config import (
    FeatureConfig,
    given_settings,
    lengths_within,
    override,
)
from albert_tf.tasks.feature_building import DECODING_SETTINGS
from bin import command_line, own_rows, tasks

FLAGS = flags.FLAGS


def define_flags() -> None:
    own_rows.define_flag()
    tasks.define_flags("Task whose examples to write.")
    flags.DEFINE_string("tokenizer", None, command_line.TOKENIZER_HELP)
    flags.DEFINE_string("output_dir", None, "Directory for the shards.")
    flags.DEFINE_list(
        "splits", [], "Splits to write; none: train and dev (MNLI: both)."
    )
    flags.DEFINE_integer(
        "num_shards",
        0,
        "Shards of each split; 0: one per 64 MB of records.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "seed", 12345, "Seed of the order of training examples.", lower_bound=0
    )
    flags.DEFINE_alias("random_seed", "seed")
    command_line.define_settings(FeatureConfig(), leave_out=DECODING_SETTINGS)
    command_line.required("data_dir", "tokenizer", "output_dir")


def main() -> None:
    from albert_tf.cluster.environment import usable_cpus
    from data_prep.finetuning_data import build_finetuning_data

    task = tasks.chosen()
    config = command_line.with_flags(FeatureConfig())
    names = {*task.kind.lengths} - given_settings(config).keys()
    build_finetuning_data(
        task,
        FLAGS.data_dir,
        FLAGS.output_dir,
        tokenizer_dir=FLAGS.tokenizer,
        config=override(config, lengths_within(config, names)),
        splits=FLAGS.splits,
        num_shards=FLAGS.num_shards,
        seed=FLAGS.seed,
        workers=usable_cpus(),
    )
    print(f"The shards are in {FLAGS.output_dir}.")


if __name__ == "__main__":
    command_line.run(define_flags, main)
