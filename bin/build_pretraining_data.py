"""Pretraining shards from plain text.

python -m bin.build_pretraining_data --input='corpus/*.txt' \\
    --tokenizer=vocab --output_dir=shards --max_seq_length=128
"""

from collections.abc import Mapping

from absl import flags

from albert_tf.config import (
    MaskingConfig,
    PretrainingDataConfig,
    override,
)
from bin import command_line

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_list(
        "input", None, "Text: files, directories or globs, comma-separated."
    )
    flags.DEFINE_list(
        "eval_input",
        [],
        "Held-out text, likewise; or hold out --eval_fraction of --input.",
    )
    flags.DEFINE_string("tokenizer", None, "Directory of the tokenizer.")
    flags.DEFINE_string("output_dir", None, "Where the shards go.")
    flags.DEFINE_integer("workers", 1, "Processes.", lower_bound=1)
    flags.DEFINE_enum(
        "runner", "local", ["local"], "What runs the job: this machine."
    )
    command_line.define_settings(PretrainingDataConfig())
    command_line.define_settings(MaskingConfig())
    command_line.required("input", "tokenizer", "output_dir")


def main() -> None:
    """Builds the shards and prints a summary."""
    command_line.load_tensorflow()
    from data_prep.pretraining_data import build_pretraining_data

    config, masking = (
        override(default, command_line.given_settings(default))
        for default in (PretrainingDataConfig(), MaskingConfig())
    )
    with command_line.progress("documents") as show:

        def show_totals(totals: Mapping[str, int]) -> None:
            done, instances = (
                totals[f"train/{name}"] + totals[f"eval/{name}"]
                for name in ("documents", "instances")
            )
            show(done, instances=instances)

        metadata = build_pretraining_data(
            FLAGS.input,
            FLAGS.output_dir,
            tokenizer_dir=FLAGS.tokenizer,
            config=config,
            masking=masking,
            eval_inputs=FLAGS.eval_input,
            workers=FLAGS.workers,
            progress=show_totals,
        )
    statistics = metadata["statistics"]
    splits = sorted(metadata["splits"], reverse=True)
    names = sorted({name for split in splits for name in statistics[split]})
    print(
        command_line.format_table(
            [
                [name, *(statistics[split].get(name, 0) for split in splits)]
                for name in names
            ],
            ["", *splits],
        )
    )
    skipped = {k: n for k, n in statistics["corpus"].items() if n}
    if skipped:
        print(f"Of the corpus: {skipped}.")
    print(f"The shards are in {FLAGS.output_dir}.")


if __name__ == "__main__":
    command_line.run(define_flags, main)
