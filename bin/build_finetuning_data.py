"""A task's examples as TFRecord shards, laid out as google-research/albert's.

python -m bin.build_finetuning_data --task=MRPC --data_dir=glue/MRPC \\
    --tokenizer=vocab --output_dir=shards/mrpc --max_seq_length=128

bin.finetune needs none of it: it reads the task's own files.
"""

from absl import flags

from albert_tf.config import FeatureConfig, override
from bin import command_line, tasks

FLAGS = flags.FLAGS

# They decide answers, and no records.
_OF_ANSWERS = ("max_answer_length", "n_best_size", "null_threshold")


def define_flags() -> None:
    """Defines the program's flags."""
    tasks.define_flags("Whose examples.")
    flags.DEFINE_string("data_dir", None, "The task's files.")
    flags.DEFINE_string(
        "tokenizer",
        None,
        "Tokenizer: its directory, or a .model, .vocab or vocab.txt file.",
    )
    flags.DEFINE_string("output_dir", None, "Where the shards go.")
    flags.DEFINE_list(
        "splits", [], "Which examples; none: train and dev (MNLI: both)."
    )
    flags.DEFINE_integer(
        "num_shards",
        0,
        "Shards of each split; 0: one per 64 MB of records.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "seed", 12345, "Of the order of training.", lower_bound=0
    )
    flags.DEFINE_alias("random_seed", "seed")
    command_line.define_settings(FeatureConfig(), leave_out=_OF_ANSWERS)
    command_line.required("task", "data_dir", "tokenizer", "output_dir")


def main() -> None:
    """Writes the shards."""
    from data_prep.finetuning_data import build_finetuning_data

    build_finetuning_data(
        tasks.chosen(),
        FLAGS.data_dir,
        FLAGS.output_dir,
        tokenizer_dir=FLAGS.tokenizer,
        config=override(
            FeatureConfig(), command_line.given_settings(FeatureConfig())
        ),
        splits=FLAGS.splits,
        num_shards=FLAGS.num_shards,
        seed=FLAGS.seed,
        workers=tasks.workers(),
    )
    print(f"The shards are in {FLAGS.output_dir}.")


if __name__ == "__main__":
    command_line.run(define_flags, main)
