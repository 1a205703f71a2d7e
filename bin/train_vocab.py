"""A SentencePiece vocabulary by the ALBERT recipe, from plain text.

python -m bin.train_vocab --input='corpus/*.txt' --output_dir=vocab \\
    --vocab_size=30000
"""

import os

from absl import flags

from bin import command_line

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_list(
        "input", None, "Text: files, directories or globs, comma-separated."
    )
    flags.DEFINE_string("output_dir", None, "Where the tokenizer goes.")
    flags.DEFINE_integer("vocab_size", 30000, "Pieces.", lower_bound=20)
    flags.DEFINE_bool("do_lower_case", True, "Lower-case every text.")
    flags.DEFINE_bool("keep_accents", False, "Keep accents.")
    flags.DEFINE_float(
        "character_coverage",
        0.99995,
        "Share of the text's characters that get a piece.",
        lower_bound=0.9,
        upper_bound=1.0,
    )
    flags.DEFINE_integer(
        "input_sentence_size",
        10_000_000,
        "Lines to train on at most, drawn from all.",
        lower_bound=1000,
    )
    flags.DEFINE_integer("random_seed", 12345, "Seed of the draw.")
    flags.DEFINE_integer(
        "skip_header_lines",
        0,
        "Lines at the head of each file that are not its text.",
        lower_bound=0,
    )
    command_line.required("input", "output_dir")


def main() -> None:
    """Trains the vocabulary and prints a summary."""
    from data_prep.corpus import (
        fingerprint_files,
        list_files,
        read_documents,
    )
    from data_prep.vocabulary import train_vocabulary

    files = list_files(FLAGS.input)
    documents = read_documents(
        files,
        document_separator="auto",
        skip_header_lines=FLAGS.skip_header_lines,
    )
    print(
        f"Training a vocabulary of {FLAGS.vocab_size} pieces on "
        f"{len(files)} files; 30 MB of text take some 20 seconds.",
        flush=True,
    )
    summary = train_vocabulary(
        (text for document in documents for text in document.paragraphs),
        FLAGS.output_dir,
        vocab_size=FLAGS.vocab_size,
        do_lower_case=FLAGS.do_lower_case,
        keep_accents=FLAGS.keep_accents,
        character_coverage=FLAGS.character_coverage,
        input_sentence_size=FLAGS.input_sentence_size,
        seed=FLAGS.random_seed,
        source=fingerprint_files(files, [os.path.basename(f) for f in files]),
    )
    for name, value in summary.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    command_line.run(define_flags, main)
