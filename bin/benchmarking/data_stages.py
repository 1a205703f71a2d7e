"""The stages that measure data: made offline, and read for training."""

import contextlib
import functools
import io
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from albert_tf.cluster.memory import peak_resident
from albert_tf.records.shards import open_shards, write_shard
from albert_tf.text.tokenizer import load_tokenizer
from bin import command_line
from bin.benchmarking import machine
from bin.benchmarking.harness import Measurement, Stage, Turns
from bin.benchmarking.workspace import Workspace
from data_prep.corpus.reading import UnitDocument, read_file
from data_prep.corpus.report import CorpusReport
from data_prep.corpus.sentences import SENTENCE_SPLITTERS
from data_prep.pretraining.pretraining_data import build_pretraining_data
from data_prep.pretraining.record_maker import RecordMaker
from data_prep.pretraining.record_parts import (
    Partition,
    shard_records,
    write_part,
)
from data_prep.pretraining.sources import TRAIN, list_inputs

# The sample whose steps are timed: heads of files spread over the corpus.
_SAMPLE_BYTES = 2_000_000
_SAMPLE_FILES = 8

_KINDS = ("dynamic", "static")
_BATCH_SIZES = (64, 256)
_READING_SECONDS = 2.0
# Batches before the clock runs: imports, caches of the disk.
_WARM_UP = 3

_WORKERS = {"one worker": 1, "two workers": 2}
_STEPS = "all steps alone"


class BuildTimes(NamedTuple):
    """The cost of a whole build, whose phases follow one another."""

    seconds: float
    planning: float  # surveying the corpus, training the sentence splitter
    records: float
    shards: float
    num_instances: int
    text_bytes: int
    peak_bytes: int  # of the main process
    worker_peak_bytes: int  # of the largest worker, 0 without any

    @property
    def rate(self) -> float:
        """Instances a second."""
        return self.num_instances / self.seconds

    @property
    def planned_rate(self) -> float:
        """Instances a second after planning, as of a very large corpus."""
        return self.num_instances / (self.records + self.shards)


class DataPreparation(Stage):
    """Builds of static records, and their steps one by one."""

    name = "data_preparation"
    description = (
        "bin.build_pretraining_data: static records, from text to shards on "
        "disk, by one worker on one core and by two on two; and each of its "
        "steps alone, on one core"
    )
    needs = ("corpus", "tokenizer_dir", "ceiling")
    fresh_process = False

    def sides(self) -> dict[str, Callable[[], Any]]:
        sides = {}
        for name, workers in _WORKERS.items():
            if workers <= len(self.workspace.cores):
                sides[name] = functools.partial(
                    self._run, measure_build, workers
                )
            else:
                command_line.log(
                    f"{name}: left out, this process may use one core."
                )
        return {**sides, _STEPS: functools.partial(self._run, measure_steps, 1)}

    def _run(self, function: Callable, workers: int) -> tuple[Any, float]:
        """Returns the result, and the seconds with the start of a process."""
        made = self.workspace
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=made.directory) as directory:
            result = machine.in_fresh_process(
                made.cores[:workers], function, made, directory, workers
            )
        return result, time.perf_counter() - begin

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        builds = {name: turns[name] for name in _WORKERS if name in turns}
        for name, (times, seconds) in builds.items():
            yield name, "instances/s", times.rate
            text = times.text_bytes / times.seconds / 1e6
            yield f"{name}, of text", "MB/s", text
            yield f"{name}, once planned", "instances/s", times.planned_rate
            for phase in ("planning", "records", "shards"):
                yield f"{name}, {phase}", "s", getattr(times, phase)
            # Training Punkt takes one core, however many workers there are.
            share = 100 * times.planning / times.seconds
            yield f"{name}, planning of the whole", "%", share
            yield f"{name}, peak memory", "MB", times.peak_bytes / 1e6
            if peak := times.worker_peak_bytes:
                yield f"{name}, peak memory of the larger", "MB", peak / 1e6
            started = times.num_instances / seconds
            yield f"{name}, with start-up", "instances/s", started
            ratio = times.rate / self.workspace.ceiling
            yield f"{name}, to training at the ceiling", "times", ratio
        one, *more = (times for times, _ in builds.values())
        for two in more:
            yield "two workers to one", "times", two.rate / one.rate
            ratio = two.planned_rate / one.planned_rate
            yield "two workers to one, once planned", "times", ratio
        (steps, num_instances), _ = turns[_STEPS]
        total = sum(steps.values())
        for step, seconds in steps.items():
            yield f"{step} alone", "instances/s", num_instances / seconds
            yield f"{step}, of the steps", "%", 100 * seconds / total
        # Of a build without any overhead.
        rate = num_instances / total
        yield _STEPS, "instances/s", rate
        share, planned = one.rate / rate, one.planned_rate / rate
        yield "one worker, of what the steps allow", "%", 100 * share
        yield "one worker, of that once planned", "%", 100 * planned


def measure_build(
    workspace: Workspace, output_dir: str, workers: int
) -> BuildTimes:
    """Returns the cost of a build, from raw text to shards on disk.

    Call in a fresh process, since peak memory is that of the whole process.
    """
    begun: dict[str, float] = {}

    @contextlib.contextmanager
    def note(unit: str) -> Iterator[Callable[..., None]]:
        begun[unit] = time.perf_counter()
        yield lambda done, total=None, **beside: None

    begin = time.perf_counter()
    metadata = build_pretraining_data(
        workspace.corpus,
        output_dir,
        tokenizer_dir=workspace.tokenizer_dir,
        config=workspace.config,
        masking=workspace.masking,
        workers=workers,
        progress=note,
    )
    end = time.perf_counter()
    return BuildTimes(
        end - begin,
        begun["characters"] - begin,
        begun["shards"] - begun["characters"],
        end - begun["shards"],
        sum(split["num_records"] for split in metadata["splits"].values()),
        sum(s["num_bytes"] for s in metadata["settings"]["inputs"].values()),
        peak_resident(),
        peak_resident(resource.RUSAGE_CHILDREN) if workers > 1 else 0,
    )


def measure_steps(
    workspace: Workspace, output_dir: str, workers: int = 1
) -> tuple[dict[str, float], int]:
    """Returns the seconds of each step of a build, and the instances made.

    The steps take a sample of the corpus, in this process alone; `output_dir`
    is an empty directory.
    """
    times: Counter[str] = Counter()

    @contextlib.contextmanager
    def clock(step: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        times[step] += time.perf_counter() - begin

    tokenizer = load_tokenizer(workspace.tokenizer_dir)
    config = workspace.config
    with clock("reading text"):
        documents = _sample(workspace)
    splitter = SENTENCE_SPLITTERS[config.sentence_splitter].train(
        "\n\n".join(document.paragraphs) for document in documents
    )
    maker = RecordMaker(tokenizer, splitter, config, workspace.masking, clock)
    counts: Counter[str] = Counter()
    partition = Partition({TRAIN: 1})
    batches = list(maker(documents, counts))
    with clock("writing parts"):
        runs = write_part(output_dir, 0, partition, batches, counts)
    with clock("writing shards"):
        records = shard_records(runs, partition, TRAIN, 0)
        write_shard(os.path.join(output_dir, "train.tfrecord"), records)
    return dict(times), counts[f"{TRAIN}/instances"]


def _sample(workspace: Workspace) -> list[UnitDocument]:
    """Returns the documents at the heads of files spread over the corpus."""
    files = list_inputs(workspace.corpus, [], workspace.config)
    number = min(len(files), _SAMPLE_FILES)

    def open_head(path: str, mode: str) -> BinaryIO:
        with open(path, mode) as file:
            return io.BytesIO(file.read(_SAMPLE_BYTES // number))

    return [
        UnitDocument(TRAIN, TRAIN, *document)
        for n in range(number)
        for document in read_file(
            files[n * len(files) // number],
            CorpusReport(),
            open_head,
        )
    ]


class Reading(Stage):
    """Batches for pretraining, by kind of record and batch size."""

    name = "reading"
    description = (
        "batches for pretraining out of shards, on one core; dynamic records "
        "are masked as they are read"
    )
    needs = ("dynamic_shards", "static_shards", "ceiling")
    max_cores = 1

    def sides(self) -> dict[Any, Callable[[], Any]]:
        return {
            (kind, size): functools.partial(self.turn, kind, size)
            for kind in _KINDS
            for size in _BATCH_SIZES
        }

    def turn(self, kind: str, batch_size: int) -> list[Measurement]:
        """Returns the cost of making batches for a few seconds."""
        from albert_tf.inputs.input_pipeline import PretrainingBatches
        from albert_tf.records.schemas import parse_batch

        directory = getattr(self.workspace, f"{kind}_shards")
        with open_shards(directory, "train") as shards:
            batches = PretrainingBatches(
                shards,
                masking_config=self.workspace.masking,
                batch_size=batch_size,
                seed=12345,
                training=True,
            )
            for step in range(_WARM_UP):
                batches.batch(step)
            whole = reading = parsing = 0.0
            step = _WARM_UP
            while whole < _READING_SECONDS:
                begin = time.perf_counter()
                batches.batch(step)
                made = time.perf_counter()
                # The same records again, as the batch has read and parsed them.
                serialized = shards.read(batches.record_numbers(step))
                read = time.perf_counter()
                parse_batch(
                    batches.kind,
                    serialized,
                    max_seq_length=batches.max_seq_length,
                    num_slots=shards.metadata["num_slots"],
                )
                whole += made - begin
                reading += read - made
                parsing += time.perf_counter() - read
                step += 1
        name = f"{kind}, batches of {batch_size}"
        rate = (step - _WARM_UP) * batch_size / whole
        rest = max(0.0, whole - reading - parsing)
        last = "masking" if kind == "dynamic" else "the rest"
        ratio = rate / self.workspace.ceiling
        return [
            (name, "sequences/s", rate),
            (f"{name}, reading", "%", 100 * reading / whole),
            (f"{name}, parsing", "%", 100 * parsing / whole),
            (f"{name}, {last}", "%", 100 * rest / whole),
            (f"{name}, to training at the ceiling", "times", ratio),
        ]
