"""Times the making of pretraining data: the whole job, and its steps alone.

`measure_build` is a job as users run it. `measure_steps` calls what the job
is made of, one after the other on a sample of the corpus; a job that loses
no time between its steps makes as many instances a second as they do.
"""

import contextlib
import dataclasses
import functools
import io
import os
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from albert_tf.config import MaskingConfig, PretrainingDataConfig
from albert_tf.records.shards import write_shard
from albert_tf.text.tokenizer import load_tokenizer
from data_prep.corpus.reading import (
    CorpusFile,
    CorpusReport,
    Document,
    read_file,
)
from data_prep.corpus.sample import SAMPLE_CHARS
from data_prep.corpus.sentences import SENTENCE_SPLITTERS
from data_prep.pretraining.build_plan import TRAIN, list_sources
from data_prep.pretraining.pretraining_data import build_pretraining_data
from data_prep.pretraining.record_maker import RecordMaker, UnitDocument
from data_prep.pretraining.record_parts import (
    Partition,
    PartWriter,
    list_runs,
    shard_records,
)

# The sample whose steps are timed: heads of files spread over the corpus.
_SAMPLE_BYTES = 2_000_000
_SAMPLE_FILES = 8


class BuildTimes(NamedTuple):
    """What a whole job took."""

    seconds: float
    # Seconds of its phases, one after the other.
    planning: float  # surveying the corpus, learning where sentences end
    records: float
    shards: float
    num_instances: int
    text_bytes: int
    peak_bytes: int  # memory of the process that ran the job
    worker_peak_bytes: int  # memory of its largest worker, 0 without any

    @property
    def rate(self) -> float:
        """Instances a second, of the whole job."""
        return self.num_instances / self.seconds

    @property
    def planned_rate(self) -> float:
        """Instances a second, of a corpus so large that planning is little."""
        return self.num_instances / (self.records + self.shards)


class StepTimes(NamedTuple):
    """What the steps took on the sample."""

    seconds: dict[str, float]
    num_instances: int

    @property
    def rate(self) -> float:
        """Instances a second, if a job were its steps and nothing else."""
        return self.num_instances / sum(self.seconds.values())


def measure_build(
    inputs: Sequence[str],
    output_dir: str,
    *,
    tokenizer_dir: str,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
    workers: int,
) -> BuildTimes:
    """Returns what building shards took, from raw text to shards on disk.

    Peak memory is that of the whole process, so it needs one of its own.

    Raises:
        UserError: see `build_pretraining_data`.
    """
    begun: dict[str, float] = {}

    @contextlib.contextmanager
    def note(unit: str) -> Iterator[Callable[..., None]]:
        begun[unit] = time.perf_counter()
        yield lambda done, total=None, **beside: None

    begin = time.perf_counter()
    metadata = build_pretraining_data(
        inputs,
        output_dir,
        tokenizer_dir=tokenizer_dir,
        config=config,
        masking=masking,
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
        peak_memory(),
        _rusage_bytes(resource.RUSAGE_CHILDREN) if workers > 1 else 0,
    )


def peak_memory() -> int:
    """Returns the most bytes that this process has had in memory."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        # getrusage would count what the starting process had before exec.
        if found := re.search(r"^VmHWM:\s+(\d+) kB", file.read(), re.MULTILINE):
            return 1024 * int(found[1])
    return _rusage_bytes(resource.RUSAGE_SELF)


def _rusage_bytes(who: int) -> int:
    """Returns peak memory; of children, that of the largest."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(who).ru_maxrss


class _Clock:
    """Adds up the seconds of each step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - begin
            self.seconds[step] = self.seconds.get(step, 0.0) + took


def measure_steps(
    inputs: Sequence[str],
    work_dir: str,
    *,
    tokenizer_dir: str,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
) -> StepTimes:
    """Returns what each step of making static records takes on its own.

    They run one after the other, in one process.

    Args:
        inputs: files, directories and globs.
        work_dir: an empty directory for what is written.
        tokenizer_dir: see `tokenizer.load_tokenizer`.
        config: how a corpus becomes records.
        masking: how they are masked.
    """
    config = dataclasses.replace(config, record_kind="static")
    clock = _Clock()
    tokenizer = load_tokenizer(tokenizer_dir)
    documents = _read(inputs, config, clock)
    splitter = SENTENCE_SPLITTERS[config.sentence_splitter].train(
        _texts(documents)
    )
    maker = RecordMaker(tokenizer, splitter, config, masking, clock)
    unit = [UnitDocument(TRAIN, TRAIN, document) for document in documents]
    counts: Counter[str] = Counter()
    partition = Partition({TRAIN: 1})
    writer = PartWriter(work_dir, 0, partition)
    for batch in maker(unit, counts):
        with clock("writing parts"):
            writer.add(batch)
    with clock("writing parts"):
        writer.finish(counts)
    with clock("writing shards"):
        records = shard_records(list_runs(work_dir), partition, TRAIN, 0)
        write_shard(os.path.join(work_dir, "train.tfrecord"), records)
    return StepTimes(clock.seconds, counts[f"{TRAIN}/instances"])


def _read(
    inputs: Sequence[str], config: PretrainingDataConfig, clock: _Clock
) -> list[Document]:
    (source,) = list_sources(inputs, [], config)
    files = sample_files(source.files)
    open_head = functools.partial(_open_head, _SAMPLE_BYTES // len(files))
    with clock("reading text"):
        return [
            document
            for file in files
            for document in read_file(
                file,
                skip_header_lines=config.skip_header_lines,
                report=CorpusReport(),
                open_file=open_head,
            )
        ]


def sample_files(files: Sequence[CorpusFile]) -> list[CorpusFile]:
    """Returns a few files, spread evenly over all of them."""
    number = min(len(files), _SAMPLE_FILES)
    return [files[n * len(files) // number] for n in range(number)]


def _open_head(num_bytes: int, path: str, mode: str) -> BinaryIO:
    """Returns the first bytes of a file as a file."""
    with open(path, mode) as file:
        return io.BytesIO(file.read(num_bytes))


def _texts(documents: Sequence[Document]) -> Iterator[str]:
    """Yields as much text as a job learns sentence ends from."""
    left = SAMPLE_CHARS
    for document in documents:
        text = "\n\n".join(document.paragraphs)[:left]
        left -= len(text)
        if text:
            yield text
