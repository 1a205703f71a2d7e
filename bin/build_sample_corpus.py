"""English prose out of the docstrings of the installed packages.

python -m bin.build_sample_corpus --output_dir=demo/corpus
"""

from absl import flags

from bin import command_line

FLAGS = flags.FLAGS


def define_flags() -> None:
    flags.DEFINE_string("output_dir", None, "Directory for the corpus.")
    flags.DEFINE_integer("workers", 2, "Processes.", lower_bound=1)
    command_line.required("output_dir")


def main() -> None:
    from data_prep.sample_corpus import build_sample_corpus

    with command_line.progress("files") as show:
        summary = build_sample_corpus(
            FLAGS.output_dir, workers=FLAGS.workers, progress=show
        )
    train, held_out = summary["train"], summary["eval"]
    rows = [
        [
            name,
            train["documents"][name],
            train["words"][name],
            held_out["documents"][name],
            held_out["words"][name],
        ]
        for name in train["documents"]
    ]
    header = ["package", "train documents", "words", "held out", "words"]
    print(command_line.format_table(rows, header))
    print(
        f"To classify: {train['passages']} passages for training and "
        f"{held_out['passages']} of held-out modules, classes of equal size."
    )


if __name__ == "__main__":
    command_line.run(define_flags, main)
