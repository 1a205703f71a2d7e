"""Plans a build of pretraining data before any record is made.

Main entry: `make_plan`. The plan says which files are read and how, what the
sentence splitter has learned, how much will be written and into how many
shards. It follows from the corpus, the tokenizer and the settings alone, so
every runner that carries it out writes the same bytes.
"""

import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from albert_tf.config import (
    MaskingConfig,
    PretrainingDataConfig,
    UserError,
    to_dict,
)
from albert_tf.text import counter_rng
from albert_tf.text.tokenizer import Tokenizer
from data_prep.corpus import (
    CorpusFile,
    CorpusReport,
    Document,
    FileSurvey,
    corpus_files,
    fingerprint,
    list_files,
    read_documents,
    read_file,
)
from data_prep.record_maker import RecordMaker, UnitDocument
from data_prep.record_parts import BUCKET_BYTES, Partition
from data_prep.segments import SENTENCE_OBJECTIVES
from data_prep.sentences import (
    PUNKT_SAMPLE_CHARS,
    SENTENCE_SPLITTERS,
    SentenceSplitter,
)
from data_prep.storage import is_remote
from data_prep.text_files import OpenFile

TRAIN, EVAL = "train", "eval"
SHARD_BYTES = 64_000_000
# metadata.json, which names every shard, stays a file that is read.
MAX_SHARDS = 4096

# Samples of the corpus are the heads of at most so many files.
_MAX_SAMPLE_FILES = 1000
# Characters that records are made of to learn how large they are: of one file
# at least so many, as the end of a document makes a smaller record.
_SIZE_SAMPLE_CHARS = 400_000
_SIZE_SAMPLE_FILE_CHARS = 50_000
# A unit of work: a part of the corpus, within bounds of characters of text
# and of bytes of records.
_UNITS = 256
_MIN_UNIT_CHARS = 100_000
_MAX_UNIT_CHARS = 8_000_000
_MAX_UNIT_BYTES = 64_000_000
# Documents that may lend each other segments: about so much text, drawn at
# random from the whole corpus.
_GROUP_CHARS = 8_000_000

# A TFRecord's length and its two checksums.
_RECORD_OVERHEAD = 16

FindFiles = Callable[[Sequence[str]], list[str]]
Survey = Callable[[Sequence[CorpusFile]], Iterable[FileSurvey]]


@dataclasses.dataclass(frozen=True)
class Source:
    """The files of an input list and the split that they are for."""

    split: str
    files: tuple[CorpusFile, ...]


@dataclasses.dataclass(frozen=True)
class BuildPlan:
    """Everything that decides the records and where they go.

    Attributes:
        sources: what is read.
        config: how a corpus becomes records.
        masking: how static records are masked.
        splitter_parameters: what the sentence splitter has learned, as JSON.
        settings: what decides the records, to recognise a finished build by.
        report: the account of reading the corpus.
        num_characters: of text, duplicates included.
        record_bytes: how much will be written, by split, about.
        partition: the shards.
        unit_characters: of text in a unit of work, about.
        num_groups: groups of documents that lend each other segments; 0 if
            none is lent.
    """

    sources: tuple[Source, ...]
    config: PretrainingDataConfig
    masking: MaskingConfig
    splitter_parameters: Mapping[str, Any]
    settings: Mapping[str, Any]
    report: CorpusReport
    num_characters: int
    record_bytes: Mapping[str, int]
    partition: Partition
    unit_characters: int
    num_groups: int

    @property
    def total_bytes(self) -> int:
        """How much will be written into shards, about."""
        return sum(self.record_bytes.values())

    def splitter(self) -> SentenceSplitter:
        """Returns the sentence splitter."""
        kind = SENTENCE_SPLITTERS[self.config.sentence_splitter]
        return kind.from_json(self.splitter_parameters)


def list_sources(
    inputs: Sequence[str],
    eval_inputs: Sequence[str],
    config: PretrainingDataConfig,
    *,
    find_files: FindFiles = list_files,
    open_file: OpenFile = open,
) -> tuple[Source, ...]:
    """Returns the training source and, if there is one, the evaluation's.

    Args:
        inputs: what to train on.
        eval_inputs: what to evaluate on.
        config: how a corpus becomes records.
        find_files: finds the files of an input list, see `corpus.list_files`.
        open_file: opens a file, as the built-in `open` does.

    Raises:
        UserError: for inputs that are missing or that contradict each other.
    """
    if eval_inputs and config.eval_fraction:
        raise UserError(
            f"eval_fraction={config.eval_fraction} and an evaluation input "
            "were both given; one of them is needed, not both."
        )
    sources = [_source(TRAIN, find_files(inputs), config, open_file)]
    if eval_inputs:
        found = find_files(eval_inputs)
        sources.append(_source(EVAL, found, config, open_file))
        paths = [{_place(f.path) for f in s.files} for s in sources]
        for path in sorted(paths[0] & paths[1]):
            raise UserError(f"{path} is in the input and the evaluation input.")
    return tuple(sources)


def _place(path: str) -> str:
    """Returns the one name of a file, however it was named."""
    return path if is_remote(path) else os.path.realpath(path)


def _source(
    split: str,
    files: Sequence[str],
    config: PretrainingDataConfig,
    open_file: OpenFile,
) -> Source:
    """Returns a source whose names do not depend on where its files lie."""
    by_name = sorted(zip(_names(files), files, strict=True))
    separator = config.document_separator
    if separator == "auto" and config.sentence_splitter == "newline":
        separator = "blank_line"  # one sentence a line: the form of BERT
    return Source(
        split,
        tuple(
            corpus_files(
                [file for _, file in by_name],
                [name for name, _ in by_name],
                separator,
                open_file,
            )
        ),
    )


def _names(files: Sequence[str]) -> list[str]:
    """Returns the paths of files from the directory that holds them all."""
    paths = [
        file if is_remote(file) else os.path.abspath(file) for file in files
    ]
    parts = [path.split("/") for path in paths]
    folders = [part[:-1] for part in parts]
    # What the first and the last share, all share.
    pairs = zip(min(folders), max(folders), strict=False)
    depth = len(
        list(itertools.takewhile(lambda pair: len({*pair}) == 1, pairs))
    )
    return ["/".join(part[depth:]) for part in parts]


def make_plan(
    sources: Sequence[Source],
    tokenizer: Tokenizer,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
    *,
    survey: Survey,
    max_bad_fraction: float,
    open_file: OpenFile = open,
) -> BuildPlan:
    """Returns the plan of a build.

    Args:
        sources: see `list_sources`.
        tokenizer: makes the ids.
        config: how a corpus becomes records.
        masking: how static records are masked.
        survey: reads files once, in their order, see `corpus.survey_file`.
        max_bad_fraction: the largest share of bad lines.
        open_file: opens a file, as the built-in `open` does.

    Raises:
        UserError: if more of the corpus is bad, or there is nothing in it.
    """
    if config.num_shards > MAX_SHARDS:
        raise UserError(
            f"num_shards={config.num_shards} is above the most allowed, "
            f"{MAX_SHARDS}."
        )
    # Files may be surveyed in other processes meanwhile.
    surveys = survey([file for source in sources for file in source.files])
    splitter = SENTENCE_SPLITTERS[config.sentence_splitter].train(
        _sample_texts(sources[0], config, PUNKT_SAMPLE_CHARS, open_file)
    )
    of_sources = _by_source(sources, surveys)
    report = CorpusReport()
    characters = Counter[str]()
    for source, of_source in zip(sources, of_sources, strict=True):
        for file_survey in of_source:
            report.merge(file_survey.report)
            characters[source.split] += file_survey.report.counts["characters"]
    report.check(max_bad_fraction)
    if config.eval_fraction:
        held_out = round(characters[TRAIN] * config.eval_fraction)
        characters[EVAL] += held_out
        characters[TRAIN] -= held_out
    bytes_per_character = _bytes_per_character(
        list(_sample_documents(sources[0], config, open_file)),
        tokenizer,
        splitter,
        config,
        masking,
    )
    record_bytes = {
        split: int(count * bytes_per_character)
        for split, count in characters.items()
    }
    total = characters.total()
    unit_characters = min(
        max(_MIN_UNIT_CHARS, total // _UNITS),
        _MAX_UNIT_CHARS,
        int(_MAX_UNIT_BYTES / bytes_per_character),
    )
    objective = SENTENCE_OBJECTIVES[config.sentence_objective]
    lends = objective.needs_other_documents
    return BuildPlan(
        sources=tuple(sources),
        config=config,
        masking=masking,
        splitter_parameters=splitter.to_json(),
        settings=_settings(sources, of_sources, tokenizer, config, masking),
        report=report,
        num_characters=total,
        record_bytes=record_bytes,
        partition=_partition(record_bytes, config),
        unit_characters=unit_characters,
        num_groups=1 + total // _GROUP_CHARS if lends else 0,
    )


def plan_settings(
    sources: Sequence[Source],
    tokenizer: Tokenizer,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
    *,
    survey: Survey,
) -> dict[str, Any]:
    """Returns the `settings` of the plan that `make_plan` would make."""
    surveys = survey([file for source in sources for file in source.files])
    return _settings(
        sources, _by_source(sources, surveys), tokenizer, config, masking
    )


def _by_source(
    sources: Sequence[Source], surveys: Iterable[FileSurvey]
) -> list[list[FileSurvey]]:
    surveys = iter(surveys)
    return [
        list(itertools.islice(surveys, len(source.files))) for source in sources
    ]


def _settings(
    sources: Sequence[Source],
    surveys: Sequence[Sequence[FileSurvey]],
    tokenizer: Tokenizer,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
) -> dict[str, Any]:
    """Returns everything that decides the records."""
    settings: dict[str, Any] = {
        "data": to_dict(config),
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "inputs": {
            source.split: {
                "num_files": len(of_source),
                "num_bytes": sum(s.num_bytes for s in of_source),
                "sha256": fingerprint(of_source),
            }
            for source, of_source in zip(sources, surveys, strict=True)
        },
    }
    if config.record_kind == "static":
        settings["masking"] = to_dict(masking)
    return settings


def _partition(
    record_bytes: Mapping[str, int], config: PretrainingDataConfig
) -> Partition:
    """Returns shards of about SHARD_BYTES, or as many as were asked for."""
    num_shards, buckets = {}, {}
    for split, num_bytes in record_bytes.items():
        wanted = min(MAX_SHARDS, 1 + num_bytes // SHARD_BYTES)
        if config.num_shards:
            # The smaller split needs no more than its own size asks for.
            of_eval = min(wanted, config.num_shards)
            wanted = config.num_shards if split == TRAIN else of_eval
        num_shards[split] = wanted
        buckets[split] = 1 + num_bytes // (wanted * BUCKET_BYTES)
    return Partition(num_shards, buckets)


def _sample_texts(
    source: Source,
    config: PretrainingDataConfig,
    num_characters: int,
    open_file: OpenFile,
) -> Iterator[str]:
    """Yields the heads of files spread evenly over the corpus."""
    files = source.files[:: -(-len(source.files) // _MAX_SAMPLE_FILES)]
    budget = num_characters // len(files)
    for file in files:
        paragraphs = (
            paragraph
            for document in read_file(
                file,
                skip_header_lines=config.skip_header_lines,
                report=CorpusReport(),
                open_file=open_file,
            )
            for paragraph in document.paragraphs
        )
        yield "\n\n".join(_head(paragraphs, budget))


def _head(paragraphs: Iterable[str], num_characters: int) -> Iterator[str]:
    """Yields paragraphs, the last cut, of so many characters together."""
    for paragraph in paragraphs:
        yield paragraph[:num_characters]
        num_characters -= len(paragraph)
        if num_characters <= 0:
            return


def _sample_documents(
    source: Source, config: PretrainingDataConfig, open_file: OpenFile
) -> Iterator[Document]:
    """Yields documents from files spread evenly over the corpus, cut."""
    left = _SIZE_SAMPLE_CHARS
    of_file = max(_SIZE_SAMPLE_FILE_CHARS, left // len(source.files))
    for file in _spread(source.files):
        of_this_file = of_file
        for document in read_file(
            file,
            skip_header_lines=config.skip_header_lines,
            report=CorpusReport(),
            open_file=open_file,
        ):
            paragraphs = tuple(_head(document.paragraphs, of_this_file))
            yield Document(document.name, paragraphs)
            size = sum(map(len, paragraphs))
            left, of_this_file = left - size, of_this_file - size
            if of_this_file <= 0:
                break
        if left <= 0:
            return


def _spread(files: Sequence[CorpusFile]) -> Iterator[CorpusFile]:
    """Yields at most _MAX_SAMPLE_FILES files, the first ones far apart."""
    files = files[:: -(-len(files) // _MAX_SAMPLE_FILES)]
    step = max(1, round(len(files) ** 0.5))
    for begin in range(step):
        yield from files[begin::step]


def _bytes_per_character(
    documents: Sequence[Document],
    tokenizer: Tokenizer,
    splitter: SentenceSplitter,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
) -> float:
    """Returns about how many bytes of records a character of text becomes."""
    once = dataclasses.replace(config, dupe_factor=1)
    maker = RecordMaker(tokenizer, splitter, once, masking)
    unit = [UnitDocument(TRAIN, TRAIN, document) for document in documents]
    num_bytes = sum(
        len(record) + _RECORD_OVERHEAD
        for batch in maker(unit, Counter())
        for record in batch.serialized
    )
    characters = sum(len(p) for d in documents for p in d.paragraphs)
    return config.dupe_factor * max(1, num_bytes) / max(1, characters)


def read_corpus(
    plan: BuildPlan, report: CorpusReport
) -> Iterator[tuple[str, Document]]:
    """Yields all documents in order, each with its source's split."""
    for source in plan.sources:
        for document in read_documents(
            source.files,
            skip_header_lines=plan.config.skip_header_lines,
            report=report,
        ):
            yield source.split, document


def unit_document(
    origin: str, document: Document, config: PretrainingDataConfig
) -> UnitDocument:
    """Returns a document with the split that it belongs to."""
    split = origin
    if origin == TRAIN and config.eval_fraction:
        key = counter_rng.key(
            config.random_seed, "eval_fraction", document.name
        )
        if counter_rng.uniforms(key, 1)[0, 0] < config.eval_fraction:
            split = EVAL
    return UnitDocument(split, origin, document)


def group_of(item: UnitDocument, plan: BuildPlan) -> int:
    """Returns the group of documents that may lend each other segments."""
    key = counter_rng.key(
        plan.config.random_seed, "group", item.origin, item.document.name
    )
    draw = counter_rng.uniforms(key, 1)[0, 0]
    return int(draw * plan.num_groups)
