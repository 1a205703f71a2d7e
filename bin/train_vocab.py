"""A SentencePiece vocabulary by the ALBERT recipe, from a corpus.

python -m bin.train_vocab --input='corpus/*.txt' --output_dir=vocab \\
    --vocab_size=30000
"""

from absl import flags

from bin import command_line, corpora

FLAGS = flags.FLAGS


def define_flags() -> None:
    corpora.define_flags()
    flags.DEFINE_string("output_dir", None, "Directory for the tokenizer.")
    flags.DEFINE_integer(
        "vocab_size", 30000, "Number of pieces.", lower_bound=20
    )
    flags.DEFINE_bool("do_lower_case", True, "Lower-case every text.")
    flags.DEFINE_bool(
        "keep_accents",
        False,
        "Keep accents, and the marks of scripts whose words differ by them: "
        "vowel signs and tone marks of Thai, viramas of Hindi, points of "
        "Hebrew.",
    )
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
    command_line.required("input", "output_dir")


def main() -> None:
    from data_prep.corpus.reading import fingerprint
    from data_prep.vocabulary import check_output_directory, train_vocabulary

    check_output_directory(FLAGS.output_dir)
    surveys = corpora.survey()
    print(
        f"Training {FLAGS.vocab_size} pieces on at most "
        f"{FLAGS.sample_characters} characters (--sample_characters) of "
        f"{len(surveys)} files; 30 million take some 20 seconds and 1 GB of "
        "memory.",
        flush=True,
    )
    summary = train_vocabulary(
        corpora.paragraphs(surveys),
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
