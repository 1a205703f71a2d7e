"""Flags and reading of a corpus of text, for programs on vocabularies."""

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import flags

from albert_tf.config import PretrainingDataConfig, override
from bin import command_line
from data_prep.corpus.listing import describe_left_out, list_files
from data_prep.corpus.reading import (
    Document,
    FileSurvey,
    read_surveyed,
    survey_files,
)
from data_prep.corpus.report import CorpusReport
from data_prep.corpus.sample import CorpusSample
from data_prep.corpus.sentences import SENTENCE_SPLITTERS
from data_prep.pretraining.sources import list_inputs

if TYPE_CHECKING:
    from data_prep.passages import Lengths, Passage

FLAGS = flags.FLAGS
flags.disclaim_key_flags()
# Settings of builds that decide what documents are, and sentences.
_OF_TEXT = ("skip_header_lines", "text_column")
_OF_PASSAGES = ("document_separator", "sentence_splitter")
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
    command_line.define_settings(PretrainingDataConfig(), only=_OF_TEXT)
    flags.DEFINE_float(
        "max_bad_fraction",
        0.1,
        "Largest share of bad lines: not UTF-8, not JSON, empty and so on.",
        lower_bound=0.0,
        upper_bound=1.0,
    )


def define_passage_flags() -> None:
    command_line.define_settings(PretrainingDataConfig(), only=_OF_PASSAGES)
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

    surveys, sample = _surveyed(input_flag)
    kind = SENTENCE_SPLITTERS[_config().sentence_splitter]
    splitter = kind.train(sample.texts())
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
    return _surveyed("input")[0]


def _config() -> PretrainingDataConfig:
    config = PretrainingDataConfig()
    given = command_line.given_settings(config)
    # Other flags may have the name of a setting that no text is read by.
    names = (*_OF_TEXT, *_OF_PASSAGES)
    return override(config, {n: given[n] for n in names if n in given})


def _surveyed(input_flag: str) -> tuple[list[FileSurvey], CorpusSample]:
    """Reads the files of a flag once, reports their faults, and samples them.

    Raises:
        UserError: when there are none, or more faults than allowed.
    """
    config, left_out = _config(), set[str]()
    find_files = functools.partial(list_files, left_out=left_out)
    files = list_inputs(
        FLAGS[input_flag].value, [], config, find_files=find_files
    )
    if left_out:
        command_line.log(f"{describe_left_out(left_out)}.")
    surveys, sample = survey_files(files, command_line.progress)
    report = CorpusReport()
    for survey in surveys:
        report.merge(survey.report)
    report.check(FLAGS.max_bad_fraction, config.skip_header_lines)
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
