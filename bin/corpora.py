"""Flags and reading of a corpus of text, for programs on vocabularies."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import flags

from bin import command_line
from data_prep.corpus.forms import corpus_files
from data_prep.corpus.listing import (
    describe_left_out,
    list_files,
    relative_names,
)
from data_prep.corpus.reading import (
    Document,
    FileSurvey,
    read_surveyed,
    survey_files,
)
from data_prep.corpus.report import CorpusReport
from data_prep.corpus.sample import CorpusSample
from data_prep.corpus.sentences import SENTENCE_SPLITTERS

if TYPE_CHECKING:
    from data_prep.passages import Lengths, Passage

FLAGS = flags.FLAGS
flags.disclaim_key_flags()
# The longest passage where no model reads it.
PASSAGE_WORDS = 128


def define_flags(input_flag: str = "input") -> None:
    flags.DEFINE_list(
        input_flag,
        None,
        "Plain text, Markdown, JSON lines or Parquet, also compressed, and "
        "data sets that `datasets` saved: files, directories or globs, "
        "comma-separated.",
    )
    flags.DEFINE_integer(
        "skip_header_lines",
        0,
        "Header lines of each file to skip.",
        lower_bound=0,
    )
    flags.DEFINE_string(
        "text_column",
        "text",
        "Column of JSON lines, Parquet files and saved data sets that has the "
        "text.",
    )
    flags.DEFINE_float(
        "max_bad_fraction",
        0.1,
        "Largest share of bad lines: not UTF-8, not JSON, empty and so on.",
        lower_bound=0.0,
        upper_bound=1.0,
    )


def define_passage_flags() -> None:
    flags.DEFINE_enum(
        "document_separator",
        "auto",
        ["auto", "file", "blank_line", "line"],
        "End of a document of plain text, as of bin.build_pretraining_data.",
    )
    flags.DEFINE_enum(
        "sentence_splitter",
        "punkt",
        list(SENTENCE_SPLITTERS),
        "How paragraphs are split into sentences, of which passages consist.",
    )
    flags.DEFINE_integer(
        "passage_tokens",
        0,
        "Longest passage in tokens, or in words for an index without a model. "
        f"0: what the model reads at once, or {PASSAGE_WORDS} words.",
        lower_bound=0,
    )


def passages(
    lengths: "Lengths", longest: int, input_flag: str = "input"
) -> "list[Passage]":
    """Returns the passages of the files, by default of `longest` at most.

    Raises:
        UserError: as `survey`.
    """
    from data_prep.passages import passages_of

    surveys, sample = _surveyed(input_flag, FLAGS.document_separator)
    splitter = SENTENCE_SPLITTERS[FLAGS.sentence_splitter].train(sample.texts())
    longest = FLAGS.passage_tokens or longest
    return [
        passage
        for survey in surveys
        for document in read_surveyed(survey)
        for passage in passages_of(document, splitter.split, lengths, longest)
    ]


def survey() -> list[FileSurvey]:
    """Reads the files of --input once and reports their faults.

    Raises:
        UserError: when there are none, or more faults than allowed.
    """
    return _surveyed("input", "auto")[0]


def _surveyed(
    input_flag: str, separator: str
) -> tuple[list[FileSurvey], CorpusSample]:
    """Reads the files of a flag once, reports their faults, and samples them.

    Raises:
        UserError: when there are none, or more faults than allowed.
    """
    left_out: set[str] = set()
    paths = list_files(FLAGS[input_flag].value, left_out)
    if left_out:
        command_line.log(f"{describe_left_out(left_out)}.")
    files = corpus_files(
        paths,
        relative_names(paths),
        separator,
        skip_header_lines=FLAGS.skip_header_lines,
        text_column=FLAGS.text_column,
    )
    surveys, sample = survey_files(files, command_line.progress)
    report = CorpusReport()
    for survey in surveys:
        report.merge(survey.report)
    report.check(FLAGS.max_bad_fraction, FLAGS.skip_header_lines)
    if faults := report.describe_faults():
        print(f"{faults}.")
    return surveys, sample


def documents(surveys: Sequence[FileSurvey]) -> Iterator[Document]:
    """Yields the documents of the files, which must be as they were."""
    with command_line.progress("files read again") as show:
        for number, survey in enumerate(surveys, 1):
            yield from read_surveyed(survey)
            show(number, len(surveys))


def paragraphs(surveys: Sequence[FileSurvey]) -> Iterator[str]:
    """Yields the paragraphs of the files, which must be as they were."""
    for document in documents(surveys):
        yield from document.paragraphs
