"""Carries out a build plan as Apache Beam pipelines: `BeamRunner`.

Two pipelines, on whichever engine the options name: one surveys the files,
the other makes the shards. Both are shuffles around the functions that the
local runner calls, so the bytes are the same. Between machines go documents
(`UnitDocument` as a tuple) and entries of shards, see `record_parts`.

Bounds: one group of documents and one shard are in memory at a time, so that
shards much larger than the usual 64 MB need machines to match. Beam's own
in-process runner, for tests and small corpora, holds everything in memory.
"""

import contextlib
import dataclasses
import functools
import io
import itertools
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import apache_beam as beam
import grpc
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    PipelineOptions,
    StandardOptions,
)
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.pvalue import (
    AsDict,
    AsList,
    AsSingleton,
    PCollection,
    TaggedOutput,
)
from apache_beam.runners.portability.fn_api_runner.fn_runner import (
    ExtendedProvisionInfo,
    FnApiRunner,
)
from apache_beam.runners.portability.portable_runner import JobServiceHandle

from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.records.shards import ShardInfo
from albert_tf.records.tfrecord import write_records
from albert_tf.text.tokenizer import Tokenizer
from data_prep.corpus.duplicates import digests, without_duplicates
from data_prep.corpus.forms import CorpusFile
from data_prep.corpus.reading import (
    FileSurvey,
    UnitDocument,
    read_again,
    survey_file,
)
from data_prep.corpus.report import CorpusReport
from data_prep.corpus.sample import CorpusSample
from data_prep.pretraining import beam_files
from data_prep.pretraining.build_directory import (
    BuildDirectory,
    BuildResult,
    read_json,
    write_json,
)
from data_prep.pretraining.build_plan import BuildPlan, group_of
from data_prep.pretraining.record_parts import KEY_BYTES

_SURVEY_DIRECTORY = ".survey"
_COUNTS = "counts"  # the name of a second output

# A UnitDocument, and its position: (number of its file among all, number in
# the file).
Row = tuple[str, str, str, tuple[str, ...]]
Position = tuple[int, int]


def files_of(path: str) -> Any:
    """Returns the module that reaches a path: `files` or `beam_files`.

    A path without a scheme is on this machine's disks, or in a directory that
    all machines share.
    """
    return beam_files if files.is_remote(path) else files


def _open_file(path: str, mode: str) -> BinaryIO:
    return files_of(path).open(path, mode)


class BeamRunner:
    """Runs builds with Apache Beam; has the methods of `LocalRunner`.

    Args:
        output_dir: any path that Beam can write.
        workers: processes of Beam's own runner on this machine, which is
            taken where the options name no runner.
        options: Beam's pipeline options, `--name=value`.
    """

    list_files = staticmethod(beam_files.list_files)
    open_file = staticmethod(_open_file)

    def __init__(
        self, output_dir: str, workers: int, options: Sequence[str]
    ) -> None:
        defaults = [
            "--no_save_main_session",
            "--default_sdk_harness_log_level=WARNING",
        ]
        if workers > 1:
            defaults += [
                "--direct_running_mode=multi_processing",
                f"--direct_num_workers={workers}",
            ]
        self._options = _checked([*defaults, *options])
        # Options configure file systems too.
        FileSystems.set_options(self._options)
        self._survey_dir = os.path.join(output_dir, _SURVEY_DIRECTORY)
        self.files = files_of(output_dir)

    def survey(
        self, corpus: Sequence[CorpusFile]
    ) -> tuple[list[FileSurvey], CorpusSample]:
        """Returns the survey of each file, and one sample of all."""
        path = os.path.join(self._survey_dir, f"{uuid.uuid4()}.json")
        try:
            # Fails before all the work if it cannot be written.
            write_json(self.files, path, {})
        except OSError as error:
            raise UserError(
                f"{os.path.dirname(self._survey_dir)} cannot be written: "
                f"{error.strerror or error}."
            ) from None
        try:
            result = self._run(path, functools.partial(_survey_files, corpus))
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
        return BuildResult.from_json(self._run(directory.result_path, make))

    def _run(
        self, path: str, add_work: Callable[[beam.Pipeline], dict[str, Any]]
    ) -> dict[str, Any]:
        """Returns the results of a pipeline's work, which it writes to `path`.

        Raises:
            UserError: if the engine cannot be reached, or the options make the
                pipeline but do not run it to its end.
        """
        pipeline = _pipeline(self._options)
        results = add_work(pipeline)
        # A file: any engine can write one.
        path_once = pipeline | "Result" >> beam.Create([path])
        _ = path_once | "WriteResult" >> beam.Map(_write_result, **results)
        try:
            ended = pipeline.run()
        except grpc.FutureTimeoutError:
            raise UserError(
                "No Beam job server answers; check --job_endpoint."
            ) from None
        state = ended.wait_until_finish() or ended.state
        written = self.files.sizes(os.path.dirname(path))
        found = {}
        if os.path.basename(path) in written:
            found = read_json(self.files, path)
        require(
            bool(found),
            f"The Beam pipeline ended as {state} and left no result; this "
            "program must run it to its end, and share the output directory "
            "with it.",
        )
        return found


def _pipeline(options: PipelineOptions) -> beam.Pipeline:
    """Returns an empty pipeline; Beam's own runner unless one is named."""
    if options.view_as(StandardOptions).runner:
        return beam.Pipeline(options=options)
    # DirectRunner would choose a runner, and fetch one from the network.
    encoded = JobServiceHandle.encode_pipeline_options(
        options.get_all_options()
    )
    info = ExtendedProvisionInfo(
        beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    )
    return beam.Pipeline(FnApiRunner(provision_info=info), options)


def _checked(options: Sequence[str]) -> PipelineOptions:
    """Returns Beam's options; raises UserError if Beam refuses them."""
    for option in options:
        require(
            option.startswith("--"),
            f"The Beam option {option!r} does not look like --name=value.",
        )
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written):
            parsed = PipelineOptions(options)
            parsed.get_all_options()  # of engines too
            _pipeline(parsed)
    except SystemExit:
        reason = written.getvalue().strip().rpartition(": error: ")[2]
    except (ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
    else:
        return parsed
    raise UserError(f"Beam refuses its options: {reason}")


def _write_result(path: str, **results: Any) -> None:
    write_json(files_of(path), path, results)


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
        survey, sample = survey_file(file, open_file=_open_file)
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
    counts = []
    if plan.config.remove_duplicates != "none":
        documents, of_duplicates = _without_duplicates(documents, plan)
        counts.append(of_duplicates)
    units = _units(documents | "Document" >> beam.Values(), plan)
    make_records = beam.ParDo(_MakeRecords(plan, tokenizer))
    entries, of_records = units | "Make" >> make_records.with_outputs(
        _COUNTS, main="main"
    )
    counts.append(of_records)
    # Shards without a record are written too.
    partition = plan.partition
    none = [(partition.shard_name(*shard), []) for shard in partition.shards()]
    written = (
        (entries, pipeline | "Empty" >> beam.Create(none))
        | "WithEmpty" >> beam.Flatten()
        | "Shards" >> beam.GroupByKey()
        | "Write" >> beam.Map(_write_shard, output_dir)
    )
    totals = (
        counts | "Counts" >> beam.Flatten() | "Sum" >> beam.CombinePerKey(sum)
    )
    return {"shards": AsList(written), "counts": AsDict(totals)}


def _read(
    numbered: tuple[int, FileSurvey], plan: BuildPlan
) -> Iterator[tuple[Position, Row]]:
    """Yields the documents of a file."""
    number, survey = numbered
    documents = read_again(survey, open_file=_open_file)
    for index, document in enumerate(documents):
        item = plan.unit_document(survey, document)
        yield (number, index), tuple(item)


def _units(rows: PCollection, plan: BuildPlan) -> PCollection:
    """Gathers documents into units of work, lists of rows."""
    if plan.num_groups:
        return (
            rows
            | "Groups"
            >> beam.GroupBy(lambda row: group_of(UnitDocument(*row), plan))
            # As `in_groups` reads them.
            | "Sort" >> beam.MapTuple(lambda _, group: sorted(group))
        )
    size = plan.unit_characters
    return (
        rows
        # A large file becomes the work of many.
        | "Spread" >> beam.Reshuffle()
        | "Batch"
        >> beam.BatchElements(
            size,
            size,
            element_size_fn=lambda row: UnitDocument(*row).num_characters,
        )
    )


class _MakeRecords(beam.DoFn):
    """Turns a unit of work into the entries of each shard, (name, entries)."""

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
        yield from (TaggedOutput(_COUNTS, pair) for pair in counts.items())


def _write_shard(
    shard: tuple[str, Iterable[Sequence[bytes]]], output_dir: str
) -> dict[str, Any]:
    """Writes a shard; returns its entry in metadata.json.

    An engine that tries again writes the same bytes again.
    """
    name, chunks = shard
    entries = sorted(itertools.chain.from_iterable(chunks))
    records = (entry[KEY_BYTES:] for entry in entries)
    path = os.path.join(output_dir, name)
    with files_of(path).replacing(path) as file:
        written = write_records(file, records)
    return dataclasses.asdict(ShardInfo(name, *written))


def _without_duplicates(
    documents: PCollection, plan: BuildPlan
) -> tuple[PCollection, PCollection]:
    """Returns documents without duplicates, see `duplicates`, and counts."""
    level = plan.config.remove_duplicates
    repeated = (
        documents
        | "Digest" >> beam.FlatMap(_digests, level)
        | "Digests" >> beam.GroupByKey()
        | "Repeated" >> beam.FlatMapTuple(_all_but_first)
    )
    kept, counts = (
        {"rows": documents, "repeated": repeated}
        | "WithRepeated" >> beam.CoGroupByKey()
        | "RemoveRepeated"
        >> beam.FlatMap(_remove_repeated, level).with_outputs(
            _COUNTS, main="main"
        )
    )
    return kept, counts


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
    yield from (TaggedOutput(_COUNTS, pair) for pair in counts.items())
