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
from albert_tf.records import counter_rng
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.text.tokenizer import Tokenizer
from data_prep.corpus.duplicates import DIGEST_ROW_BYTES
from data_prep.corpus.reading import (
    CorpusFile,
    CorpusReport,
    Document,
    FileSurvey,
    corpus_files,
    document_names,
    fingerprint,
    list_files,
    read_file_checked,
)
from data_prep.corpus.sample import CorpusSample
from data_prep.corpus.sentences import SENTENCE_SPLITTERS, SentenceSplitter
from data_prep.corpus.text_files import OpenFile
from data_prep.pretraining.build_estimate import (
    build_warnings,
    estimate_build,
    sentence_end_warnings,
)
from data_prep.pretraining.record_maker import RecordMaker, UnitDocument
from data_prep.pretraining.record_parts import Partition
from data_prep.pretraining.storage import is_remote

TRAIN, EVAL = "train", "eval"
SHARD_BYTES = 64_000_000
# metadata.json, which names every shard, stays a file that is read.
MAX_SHARDS = 4096

# A unit of work: a part of the corpus, within bounds of characters of text
# and of bytes of records.
_UNITS = 256
_MIN_UNIT_CHARS = 100_000
_MAX_UNIT_CHARS = 8_000_000
_MAX_UNIT_BYTES = 64_000_000
# Documents that may lend each other segments: about so much text, drawn at
# random from the whole corpus.
_GROUP_CHARS = 8_000_000

FindFiles = Callable[[Sequence[str]], list[str]]
Survey = Callable[[Sequence[CorpusFile]], Iterable[FileSurvey]]


@dataclasses.dataclass(frozen=True)
class Source:
    """The files of an input list and the split that they are for.

    `digests` are the sha256 of the files, once they have been surveyed.
    """

    split: str
    files: tuple[CorpusFile, ...]
    digests: tuple[str, ...] = ()


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
        warnings: what is likely wrong with the text or the settings.
        num_characters: of text, duplicates included.
        record_bytes: how much will be written, by split, about.
        other_bytes: how much room the work takes beside records, about.
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
    warnings: Sequence[str]
    num_characters: int
    record_bytes: Mapping[str, int]
    other_bytes: int
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
) -> BuildPlan:
    """Returns the plan of a build.

    Args:
        sources: see `list_sources`.
        tokenizer: makes the ids.
        config: how a corpus becomes records.
        masking: how static records are masked.
        survey: reads files once, in their order, see `corpus.survey_file`.
        max_bad_fraction: the largest share of bad lines.

    Raises:
        UserError: if more of the corpus is bad, or there is nothing in it.
    """
    if config.num_shards > MAX_SHARDS:
        raise UserError(
            f"num_shards={config.num_shards} is above the most allowed, "
            f"{MAX_SHARDS}."
        )
    of_sources, sample = _survey_sources(sources, survey)
    report = CorpusReport()
    characters = Counter[str]()
    for source, of_source in zip(sources, of_sources, strict=True):
        for file_survey in of_source:
            report.merge(file_survey.report)
            characters[source.split] += file_survey.report.counts["characters"]
    report.check(max_bad_fraction)
    if config.eval_fraction:
        _check_held_out(sources[0], of_sources[0], config)
        held_out = round(characters[TRAIN] * config.eval_fraction)
        characters[EVAL] += held_out
        characters[TRAIN] -= held_out
    splitter = SENTENCE_SPLITTERS[config.sentence_splitter].train(
        sample.texts()
    )
    once = dataclasses.replace(config, dupe_factor=1)
    maker = RecordMaker(tokenizer, splitter, once, masking)
    estimate = estimate_build(sample, maker, config.max_seq_length)
    bytes_per_character = config.dupe_factor * estimate.bytes_per_character
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
        sources=tuple(
            dataclasses.replace(
                source, digests=tuple(survey.sha256 for survey in of_source)
            )
            for source, of_source in zip(sources, of_sources, strict=True)
        ),
        config=config,
        masking=masking,
        splitter_parameters=splitter.to_json(),
        settings=_settings(sources, of_sources, tokenizer, config, masking),
        report=report,
        warnings=[
            *build_warnings(
                estimate,
                config,
                forms={
                    file.form for source in sources for file in source.files
                },
                sample=sample,
                tokenizer=tokenizer,
            ),
            *sentence_end_warnings(sample, splitter, config),
        ],
        num_characters=total,
        record_bytes=record_bytes,
        other_bytes=_other_bytes(report, sample, config),
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
    of_sources, _ = _survey_sources(sources, survey)
    return _settings(sources, of_sources, tokenizer, config, masking)


def _survey_sources(
    sources: Sequence[Source], survey: Survey
) -> tuple[list[list[FileSurvey]], CorpusSample]:
    """Returns the surveys of each source, and one sample of all.

    The surveys come without samples of their own, which many files would
    fill the memory with.
    """
    surveys = iter(survey([f for source in sources for f in source.files]))
    sample, nothing = CorpusSample(), CorpusSample()
    of_sources = []
    for source in sources:
        of_source = []
        for file_survey in itertools.islice(surveys, len(source.files)):
            sample.merge(file_survey.sample)
            of_source.append(dataclasses.replace(file_survey, sample=nothing))
        of_sources.append(of_source)
    return of_sources, sample


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
    num_shards = {}
    for split, num_bytes in record_bytes.items():
        wanted = min(MAX_SHARDS, 1 + num_bytes // SHARD_BYTES)
        if config.num_shards:
            # The smaller split needs no more than its own size asks for.
            of_eval = min(wanted, config.num_shards)
            wanted = config.num_shards if split == TRAIN else of_eval
        num_shards[split] = wanted
    return Partition(num_shards)


def _check_held_out(
    source: Source, surveys: Sequence[FileSurvey], config: PretrainingDataConfig
) -> None:
    """Raises UserError if no document, or every one, falls to evaluation."""
    found = set()
    total = 0
    for file, survey in zip(source.files, surveys, strict=True):
        number = survey.report.counts["documents"]
        total += number
        for name in itertools.islice(document_names(file), number):
            found.add(_is_held_out(name, config))
            if len(found) == 2:
                return
    other = "choose another fraction or --seed, or " * (total > 1)
    for held_out in found:
        raise UserError(
            f"eval_fraction={config.eval_fraction} holds out "
            f"{'all' if held_out else 'none'} of the {total} documents, which "
            f"are drawn one by one; {other}give an evaluation input."
        )


def _is_held_out(name: str, config: PretrainingDataConfig) -> bool:
    key = counter_rng.key(config.random_seed, "eval_fraction", name)
    return bool(counter_rng.uniforms(key, 1)[0, 0] < config.eval_fraction)


def _other_bytes(
    report: CorpusReport, sample: CorpusSample, config: PretrainingDataConfig
) -> int:
    """Returns the room for groups of documents and digests of duplicates."""
    num_bytes = 0
    if SENTENCE_OBJECTIVES[config.sentence_objective].needs_other_documents:
        text = "".join(sample.texts())
        share = len(text.encode("utf-8", "replace")) / max(1, len(text))
        num_bytes += int(1.1 * share * report.counts["characters"])
    if config.remove_duplicates != "none":
        # At most a digest for every line.
        num_bytes += DIGEST_ROW_BYTES * report.counts["lines"]
    return num_bytes


def read_corpus(plan: BuildPlan) -> Iterator[tuple[str, Document]]:
    """Yields all documents in order, each with its source's split.

    Raises:
        UserError: for a file that is no longer what it was.
    """
    for source in plan.sources:
        for file, digest in zip(source.files, source.digests, strict=True):
            for document in read_file_checked(
                file,
                digest,
                skip_header_lines=plan.config.skip_header_lines,
                report=CorpusReport(),
            ):
                yield source.split, document


def unit_document(
    origin: str, document: Document, config: PretrainingDataConfig
) -> UnitDocument:
    """Returns a document with the split that it belongs to."""
    held_out = origin == TRAIN and _is_held_out(document.name, config)
    return UnitDocument(EVAL if held_out else origin, origin, document)


def group_of(item: UnitDocument, plan: BuildPlan) -> int:
    """Returns the group of documents that may lend each other segments."""
    key = counter_rng.key(
        plan.config.random_seed, "group", item.origin, item.document.name
    )
    draw = counter_rng.uniforms(key, 1)[0, 0]
    return int(draw * plan.num_groups)
