"""Carries out a build plan as Apache Beam pipelines: `BeamRunner`.

Two pipelines, on whichever engine the options name: one surveys the files,
the other makes the shards. Both are shuffles around the functions that the
local runner calls, so the bytes are the same. Between machines go documents
(`split, origin, name, paragraphs`) and entries: a record behind its key, 8
bytes, big endian, so that entries sort as their keys do.

Bounds: one group of documents and one shard are in memory at a time, so that
shards much larger than the usual 64 MB need machines to match. Beam's own
in-process runner, for tests and small corpora, holds everything in memory.
"""

import contextlib
import dataclasses
import io
import itertools
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

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

from albert_tf.config import UserError
from albert_tf.records.shards import ShardInfo
from albert_tf.records.tfrecord import write_records
from albert_tf.text.tokenizer import Tokenizer
from data_prep.corpus.duplicates import (
    document_digest,
    paragraph_digests,
    without_paragraphs,
)
from data_prep.corpus.reading import (
    CorpusFile,
    CorpusReport,
    Document,
    FileSurvey,
    read_file_checked,
    survey_file,
)
from data_prep.corpus.sample import CorpusSample
from data_prep.pretraining import beam_storage
from data_prep.pretraining.beam_storage import storage_of
from data_prep.pretraining.build_plan import BuildPlan, group_of, unit_document
from data_prep.pretraining.local_runner import BuildResult
from data_prep.pretraining.record_maker import (
    RecordBatch,
    RecordMaker,
    UnitDocument,
)
from data_prep.pretraining.record_parts import Partition
from data_prep.pretraining.storage import read_json, write_json

# The pipelines' results, as files: any engine can write them.
_RESULT_FILE = "beam_result.json"
_SURVEY_DIRECTORY = ".survey"
_COUNTS = "counts"  # the name of a second output

_KEY_BYTES = 8

# A document and where it stands: (split, origin, name, paragraphs), and
# (number of its file among all, number in the file).
Row = tuple[str, str, str, tuple[str, ...]]
Position = tuple[int, int]


class BeamRunner:
    """Runs pipelines with Apache Beam, see `pretraining_data.Runner`.

    Args:
        output_dir: where the shards go; any path that Beam can write.
        workers: processes of Beam's own runner on this machine, which is
            taken where the options name no runner.
        options: Beam's pipeline options, `--name=value`.
    """

    def __init__(
        self, output_dir: str, workers: int, options: Sequence[str]
    ) -> None:
        self._options = _checked([*_defaults(workers), *options])
        # Options say how to reach file systems too.
        FileSystems.set_options(self._options)
        self._survey_dir = os.path.join(output_dir, _SURVEY_DIRECTORY)
        self.storage = storage_of(output_dir)

    def list_files(self, inputs: Sequence[str]) -> list[str]:
        """Returns the text files that `inputs` name, in any storage."""
        return beam_storage.list_files(inputs)

    def open_file(self, path: str, mode: str) -> Any:
        """Returns a file of the corpus, as it is stored."""
        return beam_storage.open_file(path, mode)

    def survey(
        self, files: Sequence[CorpusFile], skip_header_lines: int
    ) -> list[FileSurvey]:
        """Returns what each file holds, in their order.

        The first has the sample of all, the others none.

        Raises:
            UserError: for a file that cannot be used.
        """
        path = os.path.join(self._survey_dir, f"{uuid.uuid4()}.json")
        try:
            # Tells before all the work whether it can be written.
            write_json(self.storage, path, {})
        except OSError as error:
            raise UserError(
                f"{os.path.dirname(self._survey_dir)} cannot be written: "
                f"{error.strerror or error}."
            ) from None
        try:
            pipeline = _pipeline(self._options)
            surveys = (
                pipeline
                | "Files" >> beam.Create(list(enumerate(files)))
                | "Spread" >> beam.Reshuffle()
                | "Survey" >> beam.Map(_survey, skip_header_lines)
            )
            # One sample of all; those of many files would be too much.
            sample = (
                surveys
                | "Sample" >> beam.Map(_sample_of)
                | "Merge" >> beam.CombineGlobally(_merged_samples)
            )
            rows = surveys | "Row" >> beam.Map(_row_of)
            _write_result(
                pipeline, path, surveys=AsList(rows), sample=AsSingleton(sample)
            )
            result = _run(pipeline, path)
        finally:
            self.storage.remove_directory(self._survey_dir)
        rows = dict(result["surveys"])
        samples = itertools.chain([result["sample"]], itertools.repeat([]))
        return [
            _file_survey(rows[number], CorpusSample.from_json(sample))
            for number, sample in zip(range(len(files)), samples, strict=False)
        ]

    def run(
        self,
        plan: BuildPlan,
        tokenizer: Tokenizer,
        *,
        output_dir: str,
        work_dir: str,
    ) -> BuildResult:
        """Returns the shards that it has made in `output_dir`, and counts.

        A build that was stopped once all shards were written is not done
        again; one that was stopped earlier begins anew.

        Args:
            plan: what to do.
            tokenizer: makes the ids; it goes to the workers as it is.
            output_dir: where the shards go.
            work_dir: a directory for what the pipeline has to tell.
        """
        result = self._standing_result(output_dir, work_dir)
        if result is None:
            path = os.path.join(work_dir, _RESULT_FILE)
            pipeline = _pipeline(self._options)
            _build(pipeline, plan, tokenizer, output_dir, path)
            result = _build_result(_run(pipeline, path))
        return result

    def _standing_result(
        self, output_dir: str, work_dir: str
    ) -> BuildResult | None:
        """Returns what an earlier run has done, if it stands to the end."""
        if _RESULT_FILE not in self.storage.sizes(work_dir):
            return None
        path = os.path.join(work_dir, _RESULT_FILE)
        result = _build_result(read_json(self.storage, path))
        sizes = self.storage.sizes(output_dir)
        for shard in itertools.chain.from_iterable(result.shards.values()):
            if sizes.get(shard.name) != shard.num_bytes:
                return None
        return result


def _build_result(values: dict[str, Any]) -> BuildResult:
    shards: dict[str, list[ShardInfo]] = {}
    for value in sorted(values["shards"], key=lambda value: value["name"]):
        split = value["name"].partition("-")[0]
        shards.setdefault(split, []).append(ShardInfo(**value))
    return BuildResult(shards, Counter(values["counts"]))


def _defaults(workers: int) -> list[str]:
    """Returns options that the user's go before."""
    options = [
        "--no_save_main_session",
        "--default_sdk_harness_log_level=WARNING",
    ]
    if workers > 1:
        options += [
            "--direct_running_mode=multi_processing",
            f"--direct_num_workers={workers}",
        ]
    return options


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
        if not option.startswith("--"):
            raise UserError(
                f"The Beam option {option!r} does not look like --name=value."
            )
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written):
            parsed = PipelineOptions(options)
            parsed.get_all_options()  # of engines too
            _pipeline(parsed)
    except SystemExit:
        said = written.getvalue().strip().rpartition(": error: ")[2]
    except (ValueError, ImportError) as error:
        said = " ".join(str(error).split())
    else:
        return parsed
    raise UserError(f"Beam refuses its options: {said}")


def _run(pipeline: beam.Pipeline, path: str) -> dict[str, Any]:
    """Returns the result that a pipeline has written, once it has run.

    Raises:
        UserError: if the engine cannot be reached, or the options make the
            pipeline but do not run it to its end.
    """
    try:
        result = pipeline.run()
    except grpc.FutureTimeoutError:
        raise UserError(
            "No Beam job server answers; check --job_endpoint."
        ) from None
    state = result.wait_until_finish() or result.state
    storage = storage_of(path)
    written = os.path.basename(path) in storage.sizes(os.path.dirname(path))
    found = read_json(storage, path) if written else {}
    if not found:
        raise UserError(
            f"The Beam pipeline ended as {state} and left no result; this "
            "program must run it to its end, and share the output directory "
            "with it."
        )
    return found


def _write_result(
    pipeline: beam.Pipeline,
    path: str,
    **values: AsList | AsDict | AsSingleton,
) -> None:
    """Makes a pipeline write JSON of its results to `path`."""
    path_once = pipeline | "Result" >> beam.Create([path])
    _ = path_once | "WriteResult" >> beam.Map(_write_values, **values)


def _write_values(path: str, **values: Any) -> None:
    write_json(storage_of(path), path, values)


def _survey(
    numbered: tuple[int, CorpusFile], skip_header_lines: int
) -> tuple[int, dict[str, Any], list[list[Any]]]:
    """Returns a file's number and as JSON its survey and sample.

    Or, for the survey, what is wrong.

    An engine would wrap an error into its own.
    """
    number, file = numbered
    try:
        survey = survey_file(
            file,
            skip_header_lines=skip_header_lines,
            open_file=beam_storage.open_file,
        )
    except UserError as error:
        return number, {"error": str(error)}, []
    report = survey.report
    row = {
        "name": survey.name,
        "num_bytes": survey.num_bytes,
        "sha256": survey.sha256,
        "counts": dict(report.counts),
        "first_places": dict(report.first_places),
    }
    return number, row, survey.sample.to_json()


# Any: what Beam infers of such functions itself is wrong.
def _row_of(survey: Any) -> Any:
    return survey[:2]


def _sample_of(survey: Any) -> Any:
    return survey[2]


def _merged_samples(samples: Iterable[list[list[Any]]]) -> list[list[Any]]:
    """Returns one sample of several, all as JSON."""
    merged = CorpusSample()
    for sample in samples:
        merged.merge(CorpusSample.from_json(sample))
    return merged.to_json()


def _file_survey(row: dict[str, Any], sample: CorpusSample) -> FileSurvey:
    if "error" in row:
        raise UserError(row["error"])
    report = CorpusReport(Counter(row["counts"]), row["first_places"])
    return FileSurvey(
        row["name"], row["num_bytes"], row["sha256"], report, sample
    )


def _build(
    pipeline: beam.Pipeline,
    plan: BuildPlan,
    tokenizer: Tokenizer,
    output_dir: str,
    result_path: str,
) -> None:
    """Adds the making of the shards to a pipeline."""
    files = [
        (source.split, file, digest)
        for source in plan.sources
        for file, digest in zip(source.files, source.digests, strict=True)
    ]
    # Workers need not know of all files.
    plan = dataclasses.replace(plan, sources=())
    documents = (
        pipeline
        | "Files" >> beam.Create(list(enumerate(files)))
        | "SpreadFiles" >> beam.Reshuffle()
        | "Read" >> beam.FlatMap(_read, plan)
    )
    counts = []
    if plan.config.remove_duplicates != "none":
        documents, of_duplicates = _without_duplicates(documents, plan)
        counts.append(of_duplicates)
    entries, of_records = (
        documents
        | "Place" >> beam.Values()
        | _Units(plan)
        | "Make" >> _two_outputs(_MakeRecords(plan, tokenizer))
    )
    counts.append(of_records)
    shards = (
        entries,
        # Those without a record are written too.
        pipeline | "Empty" >> beam.Create(_no_entries(plan.partition)),
    )
    written = (
        shards
        | "WithEmpty" >> beam.Flatten()
        | "Shards" >> beam.GroupByKey()
        | "Write" >> beam.Map(_write_shard, output_dir)
    )
    totals = (
        counts | "Counts" >> beam.Flatten() | "Sum" >> beam.CombinePerKey(sum)
    )
    _write_result(
        pipeline, result_path, shards=AsList(written), counts=AsDict(totals)
    )


def _two_outputs(function: beam.DoFn) -> Any:
    """Returns a transform to a main output and one of counts."""
    return beam.ParDo(function).with_outputs(_COUNTS, main="main")


def _read(
    numbered: tuple[int, tuple[str, CorpusFile, str]], plan: BuildPlan
) -> Iterator[tuple[Position, Row]]:
    """Yields the documents of a file."""
    number, (origin, file, digest) = numbered
    documents = read_file_checked(
        file,
        digest,
        skip_header_lines=plan.config.skip_header_lines,
        report=CorpusReport(),
        open_file=beam_storage.open_file,
    )
    for place, document in enumerate(documents):
        item = unit_document(origin, document, plan.config)
        row = (item.split, origin, document.name, document.paragraphs)
        yield (number, place), row


def _item(row: Row) -> UnitDocument:
    split, origin, name, paragraphs = row
    return UnitDocument(split, origin, Document(name, tuple(paragraphs)))


def _num_characters(row: Row) -> int:
    return sum(map(len, row[3]))


class _Units(beam.PTransform):
    """Gathers documents into units of work, lists of rows."""

    def __init__(self, plan: BuildPlan) -> None:
        super().__init__()
        self._plan = plan

    def expand(self, rows: PCollection) -> PCollection:
        if self._plan.num_groups:
            return (
                rows
                | "Group" >> beam.Map(_with_group, self._plan)
                | "Groups" >> beam.GroupByKey()
                # As `document_groups` reads them.
                | "Sort" >> beam.Map(_sorted_rows)
            )
        size = self._plan.unit_characters
        return (
            rows
            # A large file becomes the work of many.
            | "Spread" >> beam.Reshuffle()
            | "Batch"
            >> beam.BatchElements(size, size, element_size_fn=_num_characters)
        )


def _with_group(row: Row, plan: BuildPlan) -> tuple[int, Row]:
    return group_of(_item(row), plan), row


def _sorted_rows(group: tuple[int, Iterable[Row]]) -> list[Row]:
    _, rows = group
    return sorted(rows)


class _MakeRecords(beam.DoFn):
    """Makes of a unit the entries of each shard, (name, entries)."""

    def __init__(self, plan: BuildPlan, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._plan = plan
        self._tokenizer = tokenizer

    def setup(self) -> None:
        plan = self._plan
        self._make = RecordMaker(
            self._tokenizer, plan.splitter(), plan.config, plan.masking
        )

    def process(self, unit: Sequence[Row]) -> Iterator[Any]:
        counts: Counter[str] = Counter()
        for batch in self._make(list(map(_item, unit)), counts):
            yield from _by_shard(batch, self._plan.partition)
        yield from _tagged(counts)


def _tagged(counts: Counter[str]) -> Iterator[TaggedOutput]:
    return (TaggedOutput(_COUNTS, pair) for pair in counts.items())


def _by_shard(
    batch: RecordBatch, partition: Partition
) -> Iterator[tuple[str, list[bytes]]]:
    split = batch.split
    shard_of = partition.shards_of(split, batch.keys).tolist()
    keys = batch.keys.astype(">u8").tobytes()
    shards: dict[int, list[bytes]] = {}
    for number, record in enumerate(batch.serialized):
        key = keys[number * _KEY_BYTES : (number + 1) * _KEY_BYTES]
        shards.setdefault(shard_of[number], []).append(key + record)
    for shard, entries in shards.items():
        yield partition.shard_name(split, shard), entries


def _no_entries(partition: Partition) -> list[tuple[str, list[bytes]]]:
    return [
        (partition.shard_name(split, shard), [])
        for split, num_shards in sorted(partition.num_shards.items())
        for shard in range(num_shards)
    ]


def _write_shard(
    shard: tuple[str, Iterable[Sequence[bytes]]], output_dir: str
) -> dict[str, Any]:
    """Returns the account of a shard, once it is written.

    An engine that tries again writes the same bytes again.
    """
    name, chunks = shard
    entries = sorted(itertools.chain.from_iterable(chunks))
    records = (entry[_KEY_BYTES:] for entry in entries)
    account = storage_of(output_dir).write(
        os.path.join(output_dir, name),
        lambda file: write_records(file, records),
    )
    return dataclasses.asdict(ShardInfo(name, *account))


def _without_duplicates(
    documents: PCollection, plan: BuildPlan
) -> tuple[PCollection, PCollection]:
    """Returns documents without what `duplicates` leaves out, and counts."""
    level = plan.config.remove_duplicates
    repeated = (
        documents
        | "Digest" >> beam.FlatMap(_digests, level)
        | "Digests" >> beam.GroupByKey()
        | "Repeated" >> beam.FlatMap(_all_but_first)
    )
    kept, counts = (
        {"rows": documents, "repeated": repeated}
        | "WithRepeated" >> beam.CoGroupByKey()
        | "RemoveRepeated" >> _two_outputs(_RemoveRepeated(level))
    )
    return kept, counts


def _digests(
    placed: tuple[Position, Row], level: str
) -> Iterator[tuple[bytes, tuple[Position, int]]]:
    """Yields the digests of a document with their places."""
    position, row = placed
    document = _item(row).document
    if level == "documents":
        digests = [document_digest(document)]
    else:
        digests = paragraph_digests(document)
    for number, digest in enumerate(digests):
        yield digest, (position, number)


def _all_but_first(
    digest: tuple[bytes, Iterable[tuple[Position, int]]],
) -> Iterator[tuple[Position, int]]:
    """Yields where a digest stands again."""
    _, places = digest
    first = min(places)
    return (place for place in places if place != first)


class _RemoveRepeated(beam.DoFn):
    """Leaves paragraphs out; a document without any is none."""

    def __init__(self, level: str) -> None:
        super().__init__()
        self._level = level

    def process(
        self, element: tuple[Position, dict[str, Iterable[Any]]]
    ) -> Iterator[Any]:
        position, groups = element
        (row,) = groups["rows"]
        drop = set(groups["repeated"])
        if not drop:
            yield position, row
            return
        document = _item(row).document
        if self._level == "documents":
            drop = set(range(len(document.paragraphs)))
        kept = without_paragraphs(document, drop)
        characters = sum(len(document.paragraphs[n]) for n in drop)
        counts = Counter(duplicate_characters=characters)
        if kept is None:
            counts["duplicate_documents"] = 1
        else:
            counts["duplicate_paragraphs"] = len(drop)
            yield position, (*row[:3], kept.paragraphs)
        yield from _tagged(counts)
