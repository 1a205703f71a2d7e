"""Carries out a build plan on this machine, in one process or several.

Main entry: `run_local`. This process reads the corpus and hands out units of
work; each becomes a part on disk (`record_parts`). Then the shards are made
of the parts. Both parts and shards that a killed build has finished are kept.
"""

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import itertools
import json
import multiprocessing
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from albert_tf.config import MaskingConfig, PretrainingDataConfig
from albert_tf.io.json_files import read_json, write_json
from albert_tf.records.shards import ShardInfo, write_shard
from albert_tf.text.tokenizer import load_tokenizer
from data_prep.corpus.duplicates import find_duplicates
from data_prep.corpus.reading import CorpusFile, FileSurvey, survey_file
from data_prep.corpus.sentences import SENTENCE_SPLITTERS
from data_prep.pretraining.build_plan import (
    BuildPlan,
    group_of,
    read_corpus,
    unit_document,
)
from data_prep.pretraining.document_groups import DocumentGroups
from data_prep.pretraining.record_maker import RecordMaker, UnitDocument
from data_prep.pretraining.record_parts import (
    Partition,
    PartWriter,
    list_runs,
    part_counts,
    shard_records,
)

# `show = progress(unit)` as a context; `show(done, total, name=number, ...)`.
Progress = Callable[[str], contextlib.AbstractContextManager[Callable]]

# Names of <malloc.h>, and how much freed memory a worker keeps at most.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64_000_000

Item = TypeVar("Item")
Result = TypeVar("Result")


class BuildResult(NamedTuple):
    """What a runner has done."""

    shards: dict[str, list[ShardInfo]]
    counts: Counter[str]


class _MakerPlan(NamedTuple):
    """What a process needs to make itself a `RecordMaker`."""

    tokenizer_dir: str
    splitter_path: str
    config: PretrainingDataConfig
    masking: MaskingConfig
    digest: str  # of what lies at the two paths


@functools.cache
def _record_maker(plan: _MakerPlan) -> RecordMaker:
    """Returns the maker for `plan`, made once in a process."""
    with open(plan.splitter_path, encoding="utf-8") as file:
        parameters = json.load(file)
    splitter = SENTENCE_SPLITTERS[plan.config.sentence_splitter]
    return RecordMaker(
        load_tokenizer(plan.tokenizer_dir),
        splitter.from_json(parameters),
        plan.config,
        plan.masking,
    )


class Workers:
    """Processes that work ahead of whoever asks for the results, in order.

    One worker is this process itself.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._pool = None
        if number == 1:
            _keep_freed_memory()
        else:
            # spawn: the threads of libraries do not survive a fork.
            self._pool = concurrent.futures.ProcessPoolExecutor(
                number,
                multiprocessing.get_context("spawn"),
                initializer=_begin_worker,
            )

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Yields the results in the order of `items`, few items in memory.

        The first items are handed out at once, before a result is asked for.
        """
        if self._pool is None:
            return map(function, items)
        items = iter(items)
        waiting = deque(
            self._pool.submit(function, item)
            for item in itertools.islice(items, 2 * self._number)
        )
        return self._results(function, items, waiting)

    def _results(
        self,
        function: Callable[[Item], Result],
        items: Iterator[Item],
        waiting: deque[concurrent.futures.Future],
    ) -> Iterator[Result]:
        while waiting:
            result = waiting.popleft().result()
            for item in itertools.islice(items, 1):
                waiting.append(self._pool.submit(function, item))
            yield result

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=error[0] is None, cancel_futures=True)


def _begin_worker() -> None:
    """Prepares a worker process."""
    _end_with_parent()
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Makes glibc keep what is freed, for NumPy's next temporary array.

    Giving it back and having it mapped anew took workers that run side by
    side a quarter of their time.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)


def _end_with_parent() -> None:
    """Makes this process end when the one that started it is killed."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def survey_locally(
    files: Sequence[CorpusFile],
    *,
    skip_header_lines: int,
    workers: Workers,
    progress: Progress,
) -> Iterator[FileSurvey]:
    """Returns the surveys of `files`; workers are at them already."""
    survey = functools.partial(survey_file, skip_header_lines=skip_header_lines)
    surveys = workers.map(survey, files)

    def shown() -> Iterator[FileSurvey]:
        with progress("files read") as show:
            for number, file_survey in enumerate(surveys, 1):
                show(number, len(files))
                yield file_survey

    return shown()


def run_local(
    plan: BuildPlan,
    *,
    output_dir: str,
    work_dir: str,
    tokenizer_dir: str,
    splitter_path: str,
    workers: Workers,
    progress: Progress,
) -> BuildResult:
    """Returns the shards that it has made in `output_dir`, and the counts.

    Args:
        plan: what to do.
        output_dir: where the shards go.
        work_dir: a directory for what lies between corpus and shards.
        tokenizer_dir: see `tokenizer.load_tokenizer`.
        splitter_path: the plan's `splitter_parameters` as a file.
        workers: the processes.
        progress: shows how far the work has come.
    """
    maker_plan = _MakerPlan(
        tokenizer_dir,
        splitter_path,
        plan.config,
        plan.masking,
        _maker_digest(plan),
    )
    counts = _make_parts(plan, work_dir, maker_plan, workers, progress)
    shards = _make_shards(plan, output_dir, work_dir, workers, progress)
    return BuildResult(shards, counts)


def _maker_digest(plan: BuildPlan) -> str:
    learned = json.dumps(plan.splitter_parameters, sort_keys=True)
    fingerprint = plan.settings["tokenizer_fingerprint"]
    return hashlib.sha256(f"{fingerprint}{learned}".encode()).hexdigest()


class _Unit(NamedTuple):
    number: int
    num_characters: int
    documents: list[UnitDocument] | None  # None: its part stands already


def _make_parts(
    plan: BuildPlan,
    work_dir: str,
    maker_plan: _MakerPlan,
    workers: Workers,
    progress: Progress,
) -> Counter[str]:
    """Returns the counts of all parts, once all are on disk."""
    totals: Counter[str] = Counter()
    make = functools.partial(_make_part, maker_plan, work_dir, plan.partition)
    done = 0
    with progress("characters") as show:
        for unit in workers.map(make, _units(plan, work_dir, totals)):
            num_characters, counts = unit
            totals.update(counts)
            done += num_characters
            show(
                done,
                plan.num_characters,
                documents=_over_splits(plan, totals, "documents"),
                instances=_over_splits(plan, totals, "instances"),
            )
    return totals


def _over_splits(plan: BuildPlan, counts: Counter[str], name: str) -> int:
    return sum(counts[f"{split}/{name}"] for split in plan.record_bytes)


def _make_part(
    maker_plan: _MakerPlan, work_dir: str, partition: Partition, unit: _Unit
) -> tuple[int, Counter[str]]:
    """Returns a unit's size and counts, once its part is on disk."""
    counts = part_counts(work_dir, unit.number)
    if counts is None:
        counts = Counter()
        writer = PartWriter(work_dir, unit.number, partition)
        for batch in _record_maker(maker_plan)(unit.documents, counts):
            writer.add(batch)
        writer.finish(counts)
    return unit.num_characters, counts


def _units(
    plan: BuildPlan, work_dir: str, totals: Counter[str]
) -> Iterator[_Unit]:
    """Yields the corpus in portions of work; finished ones come empty."""
    for number, documents in enumerate(_portions(plan, work_dir, totals)):
        num_characters = sum(map(_num_characters, documents))
        if part_counts(work_dir, number) is not None:
            documents = None
        yield _Unit(number, num_characters, documents)


def _num_characters(item: UnitDocument) -> int:
    return sum(map(len, item.document.paragraphs))


def _portions(
    plan: BuildPlan, work_dir: str, totals: Counter[str]
) -> Iterator[list[UnitDocument]]:
    items = _unit_documents(plan, work_dir, totals)
    if plan.num_groups:
        groups = DocumentGroups(work_dir, plan.num_groups)
        for item in items:
            groups.add(group_of(item, plan), item)
        yield from groups.read()
        return
    portion: list[UnitDocument] = []
    size = 0
    for item in items:
        portion.append(item)
        size += _num_characters(item)
        if size >= plan.unit_characters:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _unit_documents(
    plan: BuildPlan, work_dir: str, totals: Counter[str]
) -> Iterator[UnitDocument]:
    """Yields the documents of the corpus that are not left out."""
    items = (
        unit_document(origin, document, plan.config)
        for origin, document in read_corpus(plan)
    )
    level = plan.config.remove_duplicates
    if level == "none":
        return items
    documents = (document for _, document in read_corpus(plan))
    duplicates = find_duplicates(documents, level, work_dir)
    return duplicates.remove(items, totals)


def _make_shards(
    plan: BuildPlan,
    output_dir: str,
    work_dir: str,
    workers: Workers,
    progress: Progress,
) -> dict[str, list[ShardInfo]]:
    """Returns the accounts of all shards, by split."""
    numbers = [
        (split, shard)
        for split in sorted(plan.partition.num_shards)
        for shard in range(plan.partition.num_shards[split])
    ]
    make = functools.partial(
        _make_shard, plan.partition, list_runs(work_dir), output_dir, work_dir
    )
    shards: dict[str, list[ShardInfo]] = {}
    with progress("shards") as show:
        infos = workers.map(make, numbers)
        for (split, _), info in zip(numbers, infos, strict=True):
            shards.setdefault(split, []).append(info)
            show(sum(map(len, shards.values())), len(numbers))
    return shards


def _make_shard(
    partition: Partition,
    runs: Sequence[str],
    output_dir: str,
    work_dir: str,
    split_and_number: tuple[str, int],
) -> ShardInfo:
    """Returns the account of a shard, once it is on disk."""
    split, number = split_and_number
    name = partition.shard_name(split, number)
    path = os.path.join(output_dir, name)
    account = os.path.join(work_dir, f"{name}.json")
    if os.path.exists(account) and os.path.exists(path):
        info = ShardInfo(**read_json(account))
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == info.sha256:
                return info
    info = write_shard(path, shard_records(runs, partition, split, number))
    write_json(account, dataclasses.asdict(info))
    return info
