"""English prose out of the docstrings of the installed packages.

python -m bin.build_sample_corpus --output_dir=demo/corpus
"""

from absl import flags

from bin import command_line
from data_prep.text_sources import TEXT_SOURCES

FLAGS = flags.FLAGS


def define_flags() -> None:
    flags.DEFINE_string("output_dir", None, "Directory for the corpus.")
    flags.DEFINE_multi_enum(
        "source",
        [],
        sorted(TEXT_SOURCES),
        "Text to add, which must be installed: "
        + "; ".join(
            f"{name}: `{source.install}`, {source.licence}"
            for name, source in TEXT_SOURCES.items()
        ),
    )
    flags.DEFINE_integer("workers", 2, "Processes.", lower_bound=1)
    command_line.required("output_dir")


def main() -> None:
    from data_prep.sample_corpus import build_sample_corpus

    with command_line.progress("files") as show:
        summary = build_sample_corpus(
            FLAGS.output_dir,
            sources=FLAGS.source,
            workers=FLAGS.workers,
            progress=show,
        )
    rows = [
        [
            name,
            package["version"] or "",
            package["modules"],
            package["train"]["documents"],
            package["train"]["words"],
            package["eval"]["documents"],
            package["eval"]["words"],
        ]
        for name, package in summary["packages"].items()
    ]
    header = ["package", "version", "modules", "train documents", "words"]
    print(command_line.format_table(rows, [*header, "held out", "words"]))
    passages = summary["classification_rows"]
    print(
        f"To classify: {passages['train']} passages for training and "
        f"{passages['dev']} of held-out modules, classes of equal size. "
        f"Skipped docstrings by reason: {FLAGS.output_dir}/summary.json."
    )


if __name__ == "__main__":
    command_line.run(define_flags, main)
