"""A SentencePiece vocabulary by the ALBERT recipe, from a corpus.

python -m bin.train_vocab --input='corpus/*.txt' --output_dir=vocab \\
    --vocab_size=30000
"""

import os

from absl import flags

from bin import command_line

FLAGS = flags.FLAGS


def define_flags() -> None:
    flags.DEFINE_list(
        "input",
        None,
        "Plain text, Markdown or JSON lines, also gzipped: files, "
        "directories or globs, comma-separated.",
    )
    flags.DEFINE_string("output_dir", None, "Directory for the tokenizer.")
    flags.DEFINE_integer(
        "vocab_size", 30000, "Number of pieces.", lower_bound=20
    )
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
        "Maximum number of lines to train on, sampled from all.",
        lower_bound=1000,
    )
    flags.DEFINE_integer(
        "sample_characters",
        50_000_000,
        "Maximum number of characters to train on, sampled from all lines, "
        "each of which counts for ten more; a character takes some 30 bytes of "
        "memory.",
        lower_bound=10_000,
    )
    flags.DEFINE_integer("seed", 12345, "Seed of the sample.")
    flags.DEFINE_alias("random_seed", "seed")
    flags.DEFINE_integer(
        "skip_header_lines",
        0,
        "Header lines of each file to skip.",
        lower_bound=0,
    )
    flags.DEFINE_float(
        "max_bad_fraction",
        0.1,
        "Largest share of bad lines: not UTF-8, not JSON, empty and so on.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    command_line.required("input", "output_dir")


def main() -> None:
    from data_prep.corpus.forms import corpus_files
    from data_prep.corpus.listing import list_files
    from data_prep.corpus.reading import fingerprint, read_again, survey_file
    from data_prep.corpus.report import CorpusReport
    from data_prep.vocabulary import check_output_directory, train_vocabulary

    check_output_directory(FLAGS.output_dir)
    paths = list_files(FLAGS.input)
    files = corpus_files(
        paths,
        list(map(os.path.basename, paths)),
        "auto",
        skip_header_lines=FLAGS.skip_header_lines,
    )
    surveys = []
    report = CorpusReport()
    with command_line.progress("files read") as show:
        for file in files:
            survey, _ = survey_file(file)
            surveys.append(survey)
            report.merge(survey.report)
            show(len(surveys), len(files))
    report.check(FLAGS.max_bad_fraction)
    if faults := report.describe_faults():
        print(f"{faults}.")
    print(
        f"Training {FLAGS.vocab_size} pieces on at most "
        f"{FLAGS.sample_characters} characters (--sample_characters) of "
        f"{len(files)} files; 30 million take some 20 seconds and 1 GB of "
        "memory.",
        flush=True,
    )
    summary = train_vocabulary(
        (
            text
            for survey in surveys
            for document in read_again(survey)
            for text in document.paragraphs
        ),
        FLAGS.output_dir,
        vocab_size=FLAGS.vocab_size,
        do_lower_case=FLAGS.do_lower_case,
        keep_accents=FLAGS.keep_accents,
        character_coverage=FLAGS.character_coverage,
        input_sentence_size=FLAGS.input_sentence_size,
        sample_characters=FLAGS.sample_characters,
        seed=FLAGS.seed,
        source=fingerprint(surveys),
        log=command_line.log,
    )
    for name, value in summary.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    command_line.run(define_flags, main)
