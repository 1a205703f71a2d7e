"""Plans a build of pretraining data before any record is made: `make_plan`.

The plan has the files and their forms, the trained sentence splitter, the
sizes and the shards. It follows from the corpus, the tokenizer and the
settings alone, so every runner that carries it out writes the same bytes.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from albert_tf.config import (
    MaskingConfig,
    PretrainingDataConfig,
    require,
    to_dict,
)
from albert_tf.config.data import MAX_SHARDS
from albert_tf.records import counter_rng
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.text.tokenizer import Tokenizer
from data_prep.corpus.duplicates import DIGEST_ROW_BYTES
from data_prep.corpus.forms import CorpusFile
from data_prep.corpus.reading import (
    FileSurvey,
    UnitDocument,
    document_names,
    fingerprint,
    read_file_checked,
)
from data_prep.corpus.report import CorpusReport
from data_prep.corpus.sample import CorpusSample
from data_prep.corpus.sentences import SENTENCE_SPLITTERS, SentenceSplitter
from data_prep.pretraining.build_estimate import (
    build_warnings,
    estimate_build,
    sentence_end_warnings,
)
from data_prep.pretraining.record_maker import RecordMaker
from data_prep.pretraining.record_parts import Partition
from data_prep.pretraining.sources import (
    EVAL,
    TRAIN,
    Source,
    is_held_out,
    unit_document,
)

SHARD_BYTES = 64_000_000

# A unit of work: a part of the corpus, within bounds of characters of text
# and of bytes of records.
_UNITS = 256
_MIN_UNIT_CHARS = 100_000
_MAX_UNIT_CHARS = 8_000_000
_MAX_UNIT_BYTES = 64_000_000
# Documents that may lend each other segments: about so much text, drawn at
# random from the whole corpus.
_GROUP_CHARS = 8_000_000

Survey = Callable[[Sequence[CorpusFile]], Iterable[FileSurvey]]


@dataclasses.dataclass(frozen=True)
class BuildPlan:
    """Everything that decides the records and their shards.

    Attributes:
        sources: the files, surveyed.
        config: how a corpus becomes records.
        masking: how static records are masked.
        splitter_parameters: of the trained sentence splitter, as JSON.
        settings: what decides the records, to recognise a finished build by.
        report: the account of reading the corpus.
        warnings: likely faults of the text or the settings.
        num_characters: of text, duplicates included.
        record_bytes: estimated bytes of records, by split.
        other_bytes: estimated bytes of temporary files beside records.
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

    def splitter(self) -> SentenceSplitter:
        """Returns the sentence splitter."""
        kind = SENTENCE_SPLITTERS[self.config.sentence_splitter]
        return kind.from_json(self.splitter_parameters)

    def to_json(self) -> dict[str, Any]:
        """Returns the values that a build must share to be resumed."""
        return {
            "settings": self.settings,
            "partition": {"num_shards": dict(self.partition.num_shards)},
            "unit_characters": self.unit_characters,
            "num_groups": self.num_groups,
        }


def make_plan(
    sources: tuple[Source, ...],
    sample: CorpusSample,
    tokenizer: Tokenizer,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
    *,
    settings: Mapping[str, Any],
    max_bad_fraction: float,
) -> BuildPlan:
    """Returns the plan of a build.

    Args:
        sources: see `survey_sources`.
        sample: of all of them.
        tokenizer: of the records.
        config: how a corpus becomes records.
        masking: how static records are masked.
        settings: see `plan_settings`.
        max_bad_fraction: the largest share of bad lines.

    Raises:
        UserError: if more of the corpus is bad, or there is nothing in it.
    """
    report = CorpusReport()
    characters = Counter[str]()
    for source in sources:
        for of_file in source.surveys:
            report.merge(of_file.report)
            characters[source.split] += of_file.report.counts["characters"]
    report.check(max_bad_fraction)
    if config.eval_fraction:
        _check_held_out(sources[0], config)
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
    objective = SENTENCE_OBJECTIVES[config.sentence_objective]
    forms = {file.form for source in sources for file in source.files}
    return BuildPlan(
        sources=sources,
        config=config,
        masking=masking,
        splitter_parameters=splitter.to_json(),
        settings=settings,
        report=report,
        warnings=[
            *build_warnings(
                estimate,
                config,
                forms=forms,
                sample=sample,
                tokenizer=tokenizer,
            ),
            *sentence_end_warnings(sample, splitter, config),
        ],
        num_characters=total,
        record_bytes=record_bytes,
        other_bytes=_other_bytes(report, sample, config),
        partition=_partition(record_bytes, config),
        unit_characters=min(
            max(_MIN_UNIT_CHARS, total // _UNITS),
            _MAX_UNIT_CHARS,
            int(_MAX_UNIT_BYTES / bytes_per_character),
        ),
        num_groups=(
            1 + total // _GROUP_CHARS if objective.needs_other_documents else 0
        ),
    )


def survey_sources(
    sources: Sequence[Source], survey: Survey
) -> tuple[tuple[Source, ...], CorpusSample]:
    """Returns the sources with their surveys, and one sample of all.

    `survey` reads files once, in their order, see `reading.survey_file`. The
    surveys keep no samples of their own, which would fill the memory.
    """
    surveys = iter(survey([f for source in sources for f in source.files]))
    sample, nothing = CorpusSample(), CorpusSample()
    surveyed = []
    for source in sources:
        of_source = []
        for of_file in itertools.islice(surveys, len(source.files)):
            sample.merge(of_file.sample)
            of_source.append(dataclasses.replace(of_file, sample=nothing))
        surveyed.append(dataclasses.replace(source, surveys=tuple(of_source)))
    return tuple(surveyed), sample


def plan_settings(
    sources: Sequence[Source],
    tokenizer: Tokenizer,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
) -> dict[str, Any]:
    """Returns what decides the records, as metadata.json holds it."""
    settings: dict[str, Any] = {
        "data": to_dict(config),
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "inputs": {
            source.split: {
                "num_files": len(source.surveys),
                "num_bytes": sum(s.num_bytes for s in source.surveys),
                "sha256": fingerprint(source.surveys),
            }
            for source in sources
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
            most = wanted if split == EVAL else MAX_SHARDS
            wanted = min(most, config.num_shards)
        num_shards[split] = wanted
    return Partition(num_shards)


def _check_held_out(source: Source, config: PretrainingDataConfig) -> None:
    """Raises UserError if no document, or every one, falls to evaluation."""
    found = set()
    total = 0
    for file, survey in zip(source.files, source.surveys, strict=True):
        number = survey.report.counts["documents"]
        total += number
        for name in itertools.islice(document_names(file), number):
            found.add(is_held_out(name, config))
            if len(found) == 2:
                return
    other = "choose another fraction or --seed, or " * (total > 1)
    require(
        not found,
        f"eval_fraction={config.eval_fraction} holds out "
        f"{'all' if True in found else 'none'} of the {total} documents, "
        f"which are drawn one by one; {other}give an evaluation input.",
    )


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


def read_corpus(plan: BuildPlan) -> Iterator[UnitDocument]:
    """Yields all documents in order, each with its split.

    Raises:
        UserError: for a file that has changed.
    """
    for source in plan.sources:
        for file, digest in source.files_and_digests():
            for document in read_file_checked(file, digest):
                yield unit_document(source.split, document, plan.config)


def group_of(item: UnitDocument, plan: BuildPlan) -> int:
    """Returns the group of documents that may lend each other segments."""
    key = counter_rng.key(
        plan.config.random_seed, "group", item.origin, item.name
    )
    draw = counter_rng.uniforms(key, 1)[0, 0]
    return int(draw * plan.num_groups)
