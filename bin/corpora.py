"""Flags and reading of a corpus of text, for programs on vocabularies."""

import os
from collections.abc import Iterator, Sequence

from absl import flags

from bin import command_line
from data_prep.corpus.forms import corpus_files
from data_prep.corpus.listing import describe_left_out, list_files
from data_prep.corpus.reading import (
    Document,
    FileSurvey,
    read_surveyed,
    survey_file,
)
from data_prep.corpus.report import CorpusReport

FLAGS = flags.FLAGS
flags.disclaim_key_flags()


def define_flags() -> None:
    flags.DEFINE_list(
        "input",
        None,
        "Plain text, Markdown or JSON lines, also compressed: files, "
        "directories or globs, comma-separated.",
    )
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


def survey() -> list[FileSurvey]:
    """Reads the files of --input once and reports their faults.

    Raises:
        UserError: when there are none, or more faults than allowed.
    """
    left_out: set[str] = set()
    paths = list_files(FLAGS.input, left_out)
    if left_out:
        command_line.log(f"{describe_left_out(left_out)}.")
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
            surveys.append(survey_file(file)[0])
            report.merge(surveys[-1].report)
            show(len(surveys), len(files))
    report.check(FLAGS.max_bad_fraction)
    if faults := report.describe_faults():
        print(f"{faults}.")
    return surveys


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
