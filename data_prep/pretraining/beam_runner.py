"""Carries out a build plan as Apache Beam pipelines: `BeamRunner`.

Two pipelines, on whichever engine the options name: one surveys the files,
the other makes the shards. Both are shuffles around the functions that the
local runner calls, so the bytes are the same. Between machines go documents
(`UnitDocument` as a tuple) and entries of shards, see `record_parts`.

Bounds: one group of documents and one shard are in memory at a time, so that
shards much larger than the usual 64 MB need machines to match. Beam's own
in-process runner, for tests and small corpora, holds everything in memory.
"""

import dataclasses
import functools
import itertools
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import (
    AsDict,
    AsList,
    AsSingleton,
    PCollection,
)

from albert_tf.config import PretrainingDataConfig, UserError
from albert_tf.io.json_files import write_json
from albert_tf.records.shards import write_shard
from albert_tf.text.tokenizer import Tokenizer
from data_prep.corpus.duplicates import digests, without_duplicates
from data_prep.corpus.forms import CorpusFile
from data_prep.corpus.near_duplicates import (
    full_name,
    least_similar,
    near_duplicates,
    shown_pair,
    signatures,
)
from data_prep.corpus.reading import (
    FileSurvey,
    UnitDocument,
    read_surveyed,
    survey_file,
)
from data_prep.corpus.report import CorpusReport
from data_prep.corpus.sample import CorpusSample
from data_prep.pretraining.beam_engine import Engine, file_system_of, open_file
from data_prep.pretraining.beam_files import list_files
from data_prep.pretraining.build_directory import BuildDirectory, BuildResult
from data_prep.pretraining.build_plan import BuildPlan, group_of
from data_prep.pretraining.record_parts import records_by_key

_SURVEY_DIRECTORY = ".survey"
# The key of counts, among elements of other keys. Tagged outputs would be the
# usual form; Beam's runner on Dask gives every consumer the elements of all.
_COUNTS = ""

# A UnitDocument, and its position: (number of its file among all, number in
# the file).
Row = tuple[str, str, str, tuple[str, ...]]
Position = tuple[int, int]


class BeamRunner:
    """Runs builds with Apache Beam; has the methods of `LocalRunner`.

    `output_dir` is any path that Beam can write; for `workers` and `options`
    see `Engine`.
    """

    list_files = staticmethod(list_files)
    open_file = staticmethod(open_file)

    def __init__(
        self, output_dir: str, workers: int, options: Sequence[str]
    ) -> None:
        self._engine = Engine(options, workers)
        self._survey_dir = os.path.join(output_dir, _SURVEY_DIRECTORY)
        self.files = file_system_of(output_dir)

    def survey(
        self, corpus: Sequence[CorpusFile]
    ) -> tuple[list[FileSurvey], CorpusSample]:
        """Returns the survey of each file, and one sample of all."""
        path = os.path.join(self._survey_dir, f"{uuid.uuid4()}.json")
        try:
            # Fails before all the work if it cannot be written.
            self.files.makedirs(self._survey_dir)
            write_json(path, {}, file_system=self.files)
        except OSError as error:
            raise UserError(
                f"{os.path.dirname(self._survey_dir)} cannot be written: "
                f"{error.strerror or error}."
            ) from None
        try:
            result = self._engine.run(
                path, functools.partial(_survey_files, corpus)
            )
        finally:
            self.files.remove_tree(self._survey_dir)
        surveys = []
        for number, row in sorted(result["surveys"]):
            if "error" in row:
                raise UserError(row["error"])
            report = CorpusReport(
                Counter(row["counts"]), row["first_locations"]
            )
            stored = row["num_bytes"], row["sha256"]
            surveys.append(FileSurvey(corpus[number], *stored, report))
        return surveys, CorpusSample.from_json(result["sample"])

    def run(
        self, plan: BuildPlan, tokenizer: Tokenizer, directory: BuildDirectory
    ) -> BuildResult:
        """Writes the shards and the result."""
        make = functools.partial(_make_shards, plan, tokenizer, directory.path)
        result = self._engine.run(directory.result_path, make)
        return BuildResult.from_json(result)


def _survey_files(
    corpus: Sequence[CorpusFile], pipeline: beam.Pipeline
) -> dict[str, Any]:
    """Adds the surveys to a pipeline; returns their results."""
    surveys = (
        pipeline
        | "Files" >> beam.Create(list(enumerate(corpus)))
        | "Spread" >> beam.Reshuffle()
        | "Survey" >> beam.Map(_survey)
    )
    # One sample of all; those of many files would be too much.
    sample = (
        surveys
        | "Sample" >> beam.Values()
        | "Merge" >> beam.CombineGlobally(_merged_samples)
    )
    rows = surveys | "Row" >> beam.Keys()
    return {"surveys": AsList(rows), "sample": AsSingleton(sample)}


def _survey(
    numbered: tuple[int, CorpusFile],
) -> tuple[tuple[int, dict[str, Any]], list[list[Any]]]:
    """Returns as JSON a file's number and survey, and its sample.

    A UserError is returned instead, for an engine would wrap it into its own.
    """
    number, file = numbered
    try:
        survey, sample = survey_file(file, open_file=open_file)
    except UserError as error:
        return (number, {"error": str(error)}), []
    row = {
        "num_bytes": survey.num_bytes,
        "sha256": survey.sha256,
        "counts": dict(survey.report.counts),
        "first_locations": survey.report.first_locations,
    }
    return (number, row), sample.to_json()


def _merged_samples(samples: Iterable[list[list[Any]]]) -> list[list[Any]]:
    merged = CorpusSample()
    for sample in samples:
        merged.merge(CorpusSample.from_json(sample))
    return merged.to_json()


def _make_shards(
    plan: BuildPlan,
    tokenizer: Tokenizer,
    output_dir: str,
    pipeline: beam.Pipeline,
) -> dict[str, Any]:
    """Adds the steps that make the shards; returns the pipeline's results."""
    surveys = list(enumerate(plan.surveys))
    # Workers need not know of all files.
    plan = dataclasses.replace(plan, surveys=())
    documents = (
        pipeline
        | "Files" >> beam.Create(surveys)
        | "SpreadFiles" >> beam.Reshuffle()
        | "Read" >> beam.FlatMap(_read, plan)
    )
    documents, counts, results = _kept_documents(documents, plan.config)
    units = _units_by_draw(documents | "Document" >> beam.Values(), plan)
    made = units | "Make" >> beam.ParDo(_MakeRecords(plan, tokenizer))
    entries, of_records = _without_counts("Made", made)
    counts.append(of_records)
    # Shards without a record are written too.
    partition = plan.partition
    none = [(partition.shard_name(*shard), []) for shard in partition.shards()]
    written = (
        (entries, pipeline | "Empty" >> beam.Create(none))
        | "WithEmpty" >> beam.Flatten()
        | "Shards" >> beam.GroupByKey()
        | "Write" >> beam.Map(_shard_of_entries, output_dir)
    )
    totals = (
        counts | "Counts" >> beam.Flatten() | "Sum" >> beam.CombinePerKey(sum)
    )
    return {"shards": AsList(written), "counts": AsDict(totals), **results}


def _read(
    numbered: tuple[int, FileSurvey], plan: BuildPlan
) -> Iterator[tuple[Position, Row]]:
    """Yields the documents of a file."""
    number, survey = numbered
    documents = read_surveyed(survey, open_file=open_file)
    for index, document in enumerate(documents):
        item = plan.unit_document(survey, document)
        yield (number, index), tuple(item)


def _units_by_draw(rows: PCollection, plan: BuildPlan) -> PCollection:
    """Gathers documents into units of work, lists of rows."""
    if not plan.num_groups:
        # Any division will do; the records are the same. This one makes a
        # large file the work of many, and needs nothing of the bundles that an
        # engine makes, nor the order of reading.
        number = 1 + plan.num_characters // plan.unit_characters
        groups = dict.fromkeys(plan.record_bytes, number)
        plan = dataclasses.replace(plan, num_groups=groups)
    return (
        rows
        | "Units"
        >> beam.GroupBy(lambda row: group_of(UnitDocument(*row), plan))
        # The order in which `in_groups` reads them.
        | "Sort" >> beam.MapTuple(lambda _, unit: sorted(unit))
    )


def _without_counts(
    name: str, elements: PCollection
) -> tuple[PCollection, PCollection]:
    """Divides pairs (key, value) into those that are no counts, and counts."""
    kept = elements | f"{name}Kept" >> beam.Filter(
        lambda pair: pair[0] != _COUNTS
    )
    counts = elements | f"{name}Counts" >> beam.FlatMapTuple(
        lambda key, value: value.items() if key == _COUNTS else ()
    )
    return kept, counts


class _MakeRecords(beam.DoFn):
    """Turns a unit of work into the entries of each shard, (name, entries).

    The counts are the last element.
    """

    def __init__(self, plan: BuildPlan, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._plan = plan
        self._tokenizer = tokenizer

    def setup(self) -> None:
        self._make = self._plan.record_maker(self._tokenizer)

    def process(self, unit: Sequence[Row]) -> Iterator[Any]:
        counts: Counter[str] = Counter()
        partition = self._plan.partition
        for batch in self._make([UnitDocument(*row) for row in unit], counts):
            for shard, entries in partition.entries(batch).items():
                yield partition.shard_name(*shard), entries
        yield _COUNTS, dict(counts)


def _shard_of_entries(
    shard: tuple[str, Iterable[Sequence[bytes]]], output_dir: str
) -> dict[str, Any]:
    """Writes a shard, sorted in memory; returns its entry in metadata.json.

    An engine that repeats this writes the same bytes.
    """
    name, chunks = shard
    records = records_by_key(itertools.chain.from_iterable(chunks))
    path = os.path.join(output_dir, name)
    file_system = file_system_of(path)
    return dataclasses.asdict(
        write_shard(path, records, file_system=file_system)
    )


def _kept_documents(
    documents: PCollection, config: PretrainingDataConfig
) -> tuple[PCollection, list[PCollection], dict[str, Any]]:
    """Returns documents without duplicates, counts, and further results."""
    level = config.remove_duplicates
    if level == "none":
        return documents, [], {}
    results = {}
    if level == "near_documents":
        threshold = config.near_duplicate_threshold
        repeated, pairs = _nearly_repeated(documents, threshold)
        results["near_pairs"] = AsList(pairs)
        level = "documents"
    else:
        repeated = _repeated(documents, level)
    documents, counts = _without_repeated(documents, repeated, level)
    return documents, [counts], results


def _repeated(documents: PCollection, level: str) -> PCollection:
    """Returns (position, number in the document) of each duplicate."""
    return (
        documents
        | "Digest" >> beam.FlatMap(_digests, level)
        | "Digests" >> beam.GroupByKey()
        | "Repeated" >> beam.FlatMapTuple(_all_but_first)
    )


def _nearly_repeated(
    documents: PCollection, threshold: float
) -> tuple[PCollection, PCollection]:
    """Returns the near-duplicates as `_repeated` does, and pairs to show.

    One worker compares the signatures of all documents, in their order.
    """
    found = (
        documents
        | "Sign" >> beam.MapTuple(_signed)
        | "Signatures" >> beam.GroupByKey()
        | "Near" >> beam.FlatMap(_near_positions, threshold)
    )
    repeated = found | "NearRepeated" >> beam.MapTuple(lambda at, _: (at, 0))
    pairs = found | "NearPairs" >> beam.FlatMapTuple(lambda _, pair: pair)
    return repeated, pairs


def _signed(
    position: Position, row: Row
) -> tuple[None, tuple[Position, str, bytes]]:
    item = UnitDocument(*row)
    signature = signatures([item.paragraphs]).astype("<u4").tobytes()
    return None, (position, full_name(item), signature)


def _near_positions(
    group: tuple[None, Iterable[tuple[Position, str, bytes]]], threshold: float
) -> Iterator[tuple[Position, list[dict[str, Any]]]]:
    """Yields the near-duplicates; those to show with their pair."""
    positions, names, rows = zip(*sorted(group[1]), strict=True)
    all_ = np.frombuffer(b"".join(rows), "<u4").reshape(len(rows), -1)
    found = list(near_duplicates(all_, threshold))
    shown = set(least_similar(found))
    for pair in found:
        row = [shown_pair(pair, names)] if pair in shown else []
        yield positions[pair.number], row


def _without_repeated(
    documents: PCollection, repeated: PCollection, level: str
) -> tuple[PCollection, PCollection]:
    """Returns documents without duplicates, see `duplicates`, and counts."""
    kept = (
        {"rows": documents, "repeated": repeated}
        | "WithRepeated" >> beam.CoGroupByKey()
        | "RemoveRepeated" >> beam.FlatMap(_remove_repeated, level)
    )
    return _without_counts("Unrepeated", kept)


def _digests(
    placed: tuple[Position, Row], level: str
) -> Iterator[tuple[bytes, tuple[Position, int]]]:
    """Yields the digests of a document with their positions."""
    position, row = placed
    for number, digest in enumerate(digests(row[3], level)):
        yield digest, (position, number)


def _all_but_first(
    _: bytes, positions: Iterable[tuple[Position, int]]
) -> Iterator[tuple[Position, int]]:
    first = min(positions)
    return (position for position in positions if position != first)


def _remove_repeated(
    element: tuple[Position, dict[str, Iterable[Any]]], level: str
) -> Iterator[Any]:
    position, groups = element
    (row,) = groups["rows"]
    counts: Counter[str] = Counter()
    item = UnitDocument(*row)
    kept = without_duplicates(item, level, set(groups["repeated"]), counts)
    if kept is not None:
        yield position, tuple(kept)
    yield _COUNTS, dict(counts)
