"""Plans a build of pretraining data before any record is made: `make_plan`.

The plan has the files and their forms, the trained sentence splitter, the
sizes and the shards. It follows from the corpus, the tokenizer and the
settings alone, so every runner that carries it out writes the same bytes.
"""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from data_prep.corpus.duplicates import DIGEST_FILE_BYTES
from data_prep.corpus.near_duplicates import SIGNATURE_BYTES
from data_prep.corpus.reading import (
    Document,
    FileSurvey,
    UnitDocument,
    document_names,
    fingerprint,
    read_surveyed,
)
from data_prep.corpus.report import CorpusReport
from data_prep.corpus.sample import CorpusSample
from data_prep.corpus.sentences import SENTENCE_SPLITTERS
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
    held_out_draw,
    unit_document,
)

SHARD_BYTES = 64_000_000

# A unit of work: a part of the corpus, within bounds of characters of text
# and of bytes of records.
_UNITS = 256
_MIN_UNIT_CHARS = 100_000
# So many lines of one document may well be documents.
_MANY_LINES = 20
_MAX_UNIT_CHARS = 8_000_000
_MAX_UNIT_BYTES = 64_000_000
# Documents that may lend each other segments: about so much text, drawn at
# random from their split.
_GROUP_CHARS = 8_000_000


@dataclasses.dataclass(frozen=True)
class BuildPlan:
    """Everything that decides the records and their shards."""

    surveys: Sequence[FileSurvey]
    config: PretrainingDataConfig
    masking: MaskingConfig
    splitter_parameters: Mapping[str, Any]  # JSON
    settings: Mapping[str, Any]  # see `plan_settings`
    report: CorpusReport
    warnings: Sequence[str]  # likely faults of the text or the settings
    num_characters: int  # text, duplicates included
    record_bytes: Mapping[str, int]  # by split, estimated
    other_bytes: int  # estimated, of temporary files beside records
    partition: Partition
    unit_characters: int  # text in a unit of work, about
    # Groups of documents that lend each other segments, by split; empty if
    # none is lent.
    num_groups: Mapping[str, int]
    # Documents of the training input whose draw is below are held out.
    eval_threshold: float

    def unit_document(
        self, survey: FileSurvey, document: Document
    ) -> UnitDocument:
        """Returns a document of a file with its split."""
        seed = self.config.random_seed
        origin = survey.file.origin
        return unit_document(origin, document, seed, self.eval_threshold)

    def record_maker(self, tokenizer: Tokenizer) -> RecordMaker:
        """Returns the maker of its records, the same in every process."""
        return RecordMaker.with_splitter(
            self.splitter_parameters, tokenizer, self.config, self.masking
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the values that a build must share to be resumed."""
        return {
            "settings": self.settings,
            "partition": {"num_shards": dict(self.partition.num_shards)},
            "unit_characters": self.unit_characters,
            "num_groups": dict(self.num_groups),
        }


def make_plan(
    surveys: Sequence[FileSurvey],
    sample: CorpusSample,
    tokenizer: Tokenizer,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
    *,
    settings: Mapping[str, Any],
    max_bad_fraction: float,
) -> BuildPlan:
    """Returns the plan of a build.

    `surveys` are of all files and `sample` is of their text; `settings` are
    those of `plan_settings`.

    Raises:
        UserError: if more of the corpus is bad than `max_bad_fraction`, or
            `eval_fraction` is to divide a single document.
    """
    report = CorpusReport()
    for survey in surveys:
        report.merge(survey.report)
    report.check(max_bad_fraction, config.skip_header_lines)
    eval_threshold, notes = 0.0, []
    if config.eval_fraction:
        eval_threshold, notes = _eval_threshold(surveys, config)
    splitter = SENTENCE_SPLITTERS[config.sentence_splitter].train(
        sample.texts()
    )
    once = dataclasses.replace(config, dupe_factor=1)
    maker = RecordMaker(tokenizer, splitter, once, masking)
    estimate = estimate_build(sample, maker, config)
    bytes_per_character = config.dupe_factor * estimate.bytes_per_character
    characters = _characters_of_splits(surveys, config)
    record_bytes = {
        split: int(count * bytes_per_character)
        for split, count in characters.items()
    }
    total = characters.total()
    forms = {survey.file.form for survey in surveys}
    return BuildPlan(
        surveys=surveys,
        config=config,
        masking=masking,
        splitter_parameters=splitter.to_json(),
        settings=settings,
        report=report,
        warnings=[
            *notes,
            *_undivided(surveys),
            *filter(None, [tokenizer.clean_up_warning()]),
            *build_warnings(estimate, config, forms, sample, tokenizer),
            *sentence_end_warnings(sample, splitter, config),
        ],
        num_characters=total,
        record_bytes=record_bytes,
        other_bytes=_other_bytes(report, sample, config),
        partition=_partition(record_bytes, config),
        unit_characters=_unit_characters(total, bytes_per_character),
        num_groups=_num_groups(characters, config),
        eval_threshold=eval_threshold,
    )


def _undivided(surveys: Sequence[FileSurvey]) -> list[str]:
    """Returns a line on each file that might have a document on every line."""
    return [
        f"{survey.file.path} has no blank lines and is read as one document; "
        "--document_separator=line makes each of its "
        f"{survey.report.counts['lines']} lines one."
        for survey in surveys
        if survey.file.form == "blank_line"
        and survey.report.counts["documents"] == 1
        and survey.report.counts["lines"] >= _MANY_LINES
    ]


def _characters_of_splits(
    surveys: Sequence[FileSurvey], config: PretrainingDataConfig
) -> Counter[str]:
    """Returns the characters of text of each split, about."""
    characters = Counter[str]()
    for survey in surveys:
        of_file = survey.report.counts["characters"]
        characters[survey.file.origin] += of_file
    if config.eval_fraction:
        held_out = round(characters[TRAIN] * config.eval_fraction)
        characters[EVAL] += held_out
        characters[TRAIN] -= held_out
    return characters


def _unit_characters(total: int, bytes_per_character: float) -> int:
    return min(
        max(_MIN_UNIT_CHARS, total // _UNITS),
        _MAX_UNIT_CHARS,
        int(_MAX_UNIT_BYTES / bytes_per_character),
    )


def _num_groups(
    characters: Mapping[str, int], config: PretrainingDataConfig
) -> dict[str, int]:
    objective = SENTENCE_OBJECTIVES[config.sentence_objective]
    if not objective.needs_other_documents:
        return {}
    return {
        split: 1 + count // _GROUP_CHARS for split, count in characters.items()
    }


def plan_settings(
    surveys: Sequence[FileSurvey],
    tokenizer: Tokenizer,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
) -> dict[str, Any]:
    """Returns what decides the records, as metadata.json holds it."""
    inputs: dict[str, list[FileSurvey]] = {}
    for survey in surveys:
        inputs.setdefault(survey.file.origin, []).append(survey)
    settings: dict[str, Any] = {
        "data": to_dict(config),
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "inputs": {
            origin: {
                "num_files": len(of_files),
                "num_bytes": sum(survey.num_bytes for survey in of_files),
                "sha256": fingerprint(of_files),
            }
            for origin, of_files in inputs.items()
        },
    }
    if config.record_kind == "static":
        settings["masking"] = to_dict(masking)
    if config.remove_duplicates != "near_documents":
        # It decides nothing then.
        del settings["data"]["near_duplicate_threshold"]
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


def _eval_threshold(
    surveys: Sequence[FileSurvey], config: PretrainingDataConfig
) -> tuple[float, list[str]]:
    """Returns the draw below which a document is held out, and a log line.

    It is eval_fraction, unless that holds out all documents or none: then one
    of them goes to the other split, that with the nearest draw.

    Raises:
        UserError: if there is only one document.
    """
    fraction = config.eval_fraction
    total = below = 0
    lowest, highest = 1.0, 0.0
    for survey in surveys:
        number = survey.report.counts["documents"]
        for name in itertools.islice(document_names(survey.file), number):
            draw = held_out_draw(name, config.random_seed)
            lowest, highest = min(lowest, draw), max(highest, draw)
            total += 1
            below += draw < fraction
            if 0 < below < total:
                return fraction, []
    require(
        total > 1,
        f"eval_fraction={fraction} holds out a part of the documents, and the "
        f"input has {total}; give an evaluation input, or the "
        "--document_separator (blank_line, line) that divides it.",
    )
    line = (
        f"eval_fraction={fraction} would hold out {'all' if below else 'none'} "
        f"of the {total} documents, which are drawn one by one"
    )
    if below:
        return highest, [f"{line}: one is kept to train on."]
    return math.nextafter(lowest, 1.0), [f"{line}: one is held out."]


def _other_bytes(
    report: CorpusReport, sample: CorpusSample, config: PretrainingDataConfig
) -> int:
    """Returns the bytes of groups of documents and digests of duplicates."""
    num_bytes = 0
    if SENTENCE_OBJECTIVES[config.sentence_objective].needs_other_documents:
        text = "".join(sample.texts())
        share = len(text.encode()) / max(1, len(text))
        num_bytes += int(1.1 * share * report.counts["characters"])
    if config.remove_duplicates == "near_documents":
        num_bytes += SIGNATURE_BYTES * report.counts["documents"]
    elif config.remove_duplicates != "none":
        # There is at most a digest for every line.
        num_bytes += DIGEST_FILE_BYTES * report.counts["lines"]
    return num_bytes


def read_corpus(plan: BuildPlan) -> Iterator[UnitDocument]:
    """Yields all documents in order, each with its split."""
    for survey in plan.surveys:
        for document in read_surveyed(survey):
            yield plan.unit_document(survey, document)


def group_of(item: UnitDocument, plan: BuildPlan) -> int:
    """Returns the group of documents that may lend each other segments."""
    key = counter_rng.key(
        plan.config.random_seed, "group", item.origin, item.name
    )
    draw = counter_rng.uniforms(key, 1)[0, 0]
    return int(draw * plan.num_groups[item.split])
